//! Memory of other processes, opened in this one.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use cachette_hal::{
    self as hal, AnyDevice, Backing, Device, DeviceInfo, DevicePtr, FabricHandle, IpcToken, VirtualMemory,
};
use cachette_ipc::{ChunkHandle, Connection, DeviceTag, ExportedChunk, Exporter, Handle, OpenError, OpenReply};

use super::error::IpcError;
use super::export::{ExportedBlock, device_tag};
use crate::device_state::DeviceState;
use crate::error::Error;
use crate::sync::Mutex;

/// The memory that an allocator shares with other processes.
pub(crate) struct IpcState<D: Device> {
    pub(crate) exporter: Exporter<ExportedBlock<D>>,
    imports: Mutex<ImportTable<D>>,
    unclosed: Arc<Unclosed<D>>,
}

impl<D: Device> Default for IpcState<D> {
    fn default() -> Self {
        let imports = Mutex::new(ImportTable { opened: HashMap::new(), segments: HashMap::new(), most: 0 });
        Self { exporter: Exporter::default(), imports, unclosed: Arc::new(Unclosed(Mutex::default())) }
    }
}

/// Memory of another process.
///
/// It is a handle: clones refer to the same memory, and opening the same memory again returns the same addresses. The
/// drop of the last one waits for the device and closes the memory, so it must not happen during a capture.
///
/// The memory stays while this value lives, even if its allocation is freed; in chunks, even if the exporter ends.
#[derive(Debug)]
pub struct ImportedMemory<D: Device = AnyDevice> {
    opened: Arc<OpenMemory<D>>,
}

impl<D: Device> ImportedMemory<D> {
    /// The address of the first byte, in this process.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.opened.address
    }

    /// The first byte, in this process.
    #[must_use]
    pub fn ptr(&self) -> Option<DevicePtr> {
        DevicePtr::new(self.opened.address)
    }

    /// The usable bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.opened.bytes
    }

    /// Returns whether the exporter still keeps the memory for this process.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.opened.lease.as_ref().and_then(|lease| lease.connection.as_ref()).is_some_and(Connection::is_alive)
    }
}

impl<D: Device> Clone for ImportedMemory<D> {
    fn clone(&self) -> Self {
        Self { opened: Arc::clone(&self.opened) }
    }
}

/// Memory of another process, opened once.
#[derive(Debug)]
struct OpenMemory<D: Device> {
    state: Arc<DeviceState<D>>,
    address: u64,
    bytes: u64,
    /// `None` only during a drop.
    lease: Option<ImportLease<D>>,
    unclosed: Arc<Unclosed<D>>,
}

/// The memory of an import, and the connection that makes the exporter keep it.
#[derive(Debug)]
struct ImportLease<D: Device> {
    memory: ImportKind<D>,
    // The last field, so that the socket closes after the memory is unmapped. Then the exporter may reuse the block.
    /// `None` after an open that failed.
    connection: Option<Connection>,
}

impl<D: Device> Drop for OpenMemory<D> {
    fn drop(&mut self) {
        let Some(mut lease) = self.lease.take() else { return };
        // In a forked child the memory and the connection belong to the parent.
        if self.state.origin.is_inherited() {
            self.state.origin.keep(&self.state);
            lease.connection.iter_mut().for_each(Connection::detach);
            Box::leak(Box::new(lease.memory));
            return;
        }
        // A destructor cannot report a failure, so it retries once.
        if !lease.close(&self.state) && !lease.close(&self.state) {
            self.unclosed.0.lock().push(lease);
        }
    }
}

impl<D: Device> ImportLease<D> {
    /// Waits for the device, and unmaps the memory. Returns `false` if the driver fails: work may still use the memory
    /// then, so the exporter keeps it.
    fn close(&mut self, state: &DeviceState<D>) -> bool {
        // Another stream may be captured, which forbids the wait.
        let _relaxed = state.relax_capture();
        // On a lost device no work runs either.
        let is_over = state.device.synchronize_device().map_or_else(|error| error.kind().stops_work(), |()| true);
        match &mut self.memory {
            ImportKind::Chunks(mapped) if is_over => mapped.clear(),
            ImportKind::Segment(_) | ImportKind::Chunks(_) | ImportKind::Local => is_over,
        }
    }
}

/// Imports that the driver refused to close.
#[derive(Debug)]
struct Unclosed<D: Device>(Mutex<Vec<ImportLease<D>>>);

impl<D: Device> Drop for Unclosed<D> {
    fn drop(&mut self) {
        // Work may still use the memory, so it stays mapped, and the exporter keeps it until this process ends.
        self.0.lock().drain(..).for_each(std::mem::forget);
    }
}

#[derive(Debug)]
enum ImportKind<D: Device> {
    /// By the token of its segment.
    Segment(#[expect(dead_code, reason = "it keeps the segment open")] Arc<OpenSegment<D>>),
    Chunks(MappedChunks<D>),
    /// This process exports it.
    Local,
}

/// A segment of another process, opened once for all of its blocks.
#[derive(Debug)]
struct OpenSegment<D: Device> {
    state: Arc<DeviceState<D>>,
    start: DevicePtr,
}

impl<D: Device> OpenSegment<D> {
    fn close(&self) -> hal::Result<()> {
        let ipc = self.state.device.ipc()?;
        // SAFETY: 1. this value opened it, and is being dropped. 2. Its users have waited for the device.
        unsafe { ipc.close_token(self.start) }
    }
}

impl<D: Device> Drop for OpenSegment<D> {
    fn drop(&mut self) {
        // A destructor cannot report a failure, so it retries once.
        if self.close().is_err() {
            let _ = self.close();
        }
    }
}

struct ImportTable<D: Device> {
    opened: HashMap<Vec<u8>, Weak<OpenMemory<D>>>,
    segments: HashMap<IpcToken, Weak<OpenSegment<D>>>,
    /// From so many entries on, those of closed memory are removed. Twice the others, so each open pays for a few.
    most: usize,
}

impl<D: Device> IpcState<D> {
    pub(super) fn open(&self, state: &Arc<DeviceState<D>>, bytes: &[u8]) -> Result<ImportedMemory<D>, Error> {
        let handle = Handle::decode(bytes).map_err(IpcError::from)?;
        check_device(handle.device, state.device.info())?;
        if let Some(opened) = self.imports.lock().find(bytes) {
            return Ok(ImportedMemory { opened });
        }
        let (connection, reply) = Connection::open(&handle).map_err(IpcError::from)?;
        let _relaxed = state.relax_capture();
        let mapped = match reply {
            OpenReply::Chunks(count) => Some(self.map_all(state, &connection, &handle, count)?),
            OpenReply::Token(_) | OpenReply::Local(_) => None,
        };
        let mut table = self.imports.lock();
        // If another thread has opened it in the meantime, this import is dropped.
        if let Some(opened) = table.find(bytes) {
            drop(table);
            return Ok(ImportedMemory { opened });
        }
        let (start, memory) = match (reply, mapped) {
            (OpenReply::Token(token), _) => {
                let segment = table.segment(state, IpcToken(token))?;
                (segment.start.address(), ImportKind::Segment(segment))
            }
            (OpenReply::Local(address), _) => (address, ImportKind::Local),
            (OpenReply::Chunks(_), None) => return Err(IpcError::from(connection.protocol_error()).into()),
            (OpenReply::Chunks(_), Some(mapped)) => {
                // Under the lock, so that no peer is added between this call and the entry in the table.
                mapped.grant()?;
                (mapped.start.address(), ImportKind::Chunks(mapped))
            }
        };
        let address = handle.span.address(start).ok_or(IpcError::Open(OpenError::Damaged))?;
        let (state, unclosed) = (Arc::clone(state), Arc::clone(&self.unclosed));
        let lease = Some(ImportLease { memory, connection: Some(connection) });
        let opened = Arc::new(OpenMemory { state, address, bytes: handle.span.bytes, lease, unclosed });
        table.opened.insert(bytes.to_vec(), Arc::downgrade(&opened));
        drop(table);
        Ok(ImportedMemory { opened })
    }

    /// Maps all chunks contiguously, without access yet.
    fn map_all(
        &self,
        state: &Arc<DeviceState<D>>,
        connection: &Connection,
        handle: &Handle,
        count: u32,
    ) -> Result<MappedChunks<D>, Error> {
        // This comes first, so that the exporter works while this process reserves addresses.
        let mut batches = connection.batches(count).map_err(IpcError::from)?;
        let bytes = handle.span.extent;
        let start = state.device.virtual_memory()?.reserve(bytes, None)?;
        let (mappings, handles, unclosed) = (Vec::new(), Vec::new(), Arc::clone(&self.unclosed));
        let mut mapped =
            MappedChunks { state: Arc::clone(state), unclosed, start, released: false, bytes, mappings, handles };
        // The descriptors of a batch are closed before the next batch is received.
        while let Some(chunks) = batches.receive().map_err(IpcError::from)? {
            for chunk in chunks {
                if chunk.bytes == 0 || chunk.bytes > mapped.missing() {
                    return Err(IpcError::from(connection.protocol_error()).into());
                }
                mapped.add(&chunk)?;
            }
        }
        if mapped.missing() > 0 { Err(IpcError::from(OpenError::Damaged).into()) } else { Ok(mapped) }
    }

    /// Closes the imports that could not be closed before, if that is possible now.
    pub(crate) fn close_imports(&self, state: &DeviceState<D>) {
        let mut leases = std::mem::take(&mut *self.unclosed.0.lock());
        leases.retain_mut(|lease| !lease.close(state));
        self.unclosed.0.lock().append(&mut leases);
    }

    /// Lets the peers of the device access all mapped memory.
    pub(crate) fn grant(&self) -> hal::Result<()> {
        let all: Vec<_> = self.imports.lock().opened.values().filter_map(Weak::upgrade).collect();
        let leases = all.iter().filter_map(|opened| opened.lease.as_ref());
        leases.map(|lease| &lease.memory).try_for_each(|memory| match memory {
            ImportKind::Chunks(mapped) => mapped.grant(),
            ImportKind::Segment(_) | ImportKind::Local => Ok(()),
        })
    }
}

impl<D: Device> ImportTable<D> {
    /// Finds open memory by its handle. Sometimes removes the entries of closed memory.
    fn find(&mut self, handle: &[u8]) -> Option<Arc<OpenMemory<D>>> {
        if self.opened.len() + self.segments.len() >= self.most {
            self.opened.retain(|_, opened| opened.strong_count() > 0);
            self.segments.retain(|_, segment| segment.strong_count() > 0);
            self.most = 2 * (self.opened.len() + self.segments.len()).max(8);
        }
        self.opened.get(handle)?.upgrade()
    }

    fn segment(&mut self, state: &Arc<DeviceState<D>>, token: IpcToken) -> Result<Arc<OpenSegment<D>>, Error> {
        if let Some(segment) = self.segments.get(&token).and_then(Weak::upgrade) {
            return Ok(segment);
        }
        let start = state.device.ipc()?.open_token(&token)?;
        let segment = Arc::new(OpenSegment { state: Arc::clone(state), start });
        self.segments.insert(token, Arc::downgrade(&segment));
        Ok(segment)
    }
}

/// Chunks of another process, mapped contiguously in exactly as many addresses as they need.
#[derive(Debug)]
struct MappedChunks<D: Device> {
    state: Arc<DeviceState<D>>,
    unclosed: Arc<Unclosed<D>>,
    start: DevicePtr,
    bytes: u64,
    /// Whether the addresses are released.
    released: bool,
    /// Address and bytes of each mapping, in order, without gaps until they are unmapped.
    mappings: Vec<(DevicePtr, u64)>,
    /// Handles that could not be destroyed yet. The mappings keep the memory.
    handles: Vec<Backing>,
}

impl<D: Device> MappedChunks<D> {
    fn missing(&self) -> u64 {
        // There are no gaps, so the last mapping gives the end.
        let end = self.mappings.last().map(|(at, bytes)| at.address() + bytes);
        self.bytes - end.map_or(0, |end| end - self.start.address())
    }

    /// Maps a chunk after the others, without access yet. The caller has checked that it fits.
    fn add(&mut self, chunk: &ExportedChunk) -> hal::Result<()> {
        let state = Arc::clone(&self.state);
        let memory = state.device.virtual_memory()?;
        let backing = match &chunk.handle {
            ChunkHandle::Descriptor(descriptor) => memory.import_backing(descriptor.as_fd(), chunk.bytes),
            ChunkHandle::Fabric(name) => memory.import_fabric(&FabricHandle(*name), chunk.bytes),
        }?;
        let at = self.start.add(self.bytes - self.missing());
        // SAFETY: 1. the backing was just imported.
        let mapped = unsafe { memory.map(at, &backing) };
        self.handles.push(backing);
        mapped?;
        self.mappings.push((at, chunk.bytes));
        self.destroy_handles(memory);
        Ok(())
    }

    fn grant(&self) -> hal::Result<()> {
        let memory = self.state.device.virtual_memory()?;
        // SAFETY: 2. the call only adds access.
        unsafe { memory.set_access(self.start, self.bytes, &self.state.access()) }
    }

    /// Destroys the handles of mapped chunks. A failure is retried at the drop.
    fn destroy_handles(&mut self, memory: &dyn VirtualMemory) {
        let handles = std::mem::take(&mut self.handles);
        for handle in handles {
            let (raw, bytes) = (handle.raw(), handle.bytes());
            // SAFETY: 1. this device imported it, and it is removed from the list here.
            let destroyed = unsafe { memory.destroy_backing(handle) };
            if destroyed.is_err() {
                self.handles.push(Backing::from_raw(raw, bytes));
            }
        }
    }

    /// Unmaps the chunks. Releases the addresses if all unmaps succeeded. Returns whether nothing is left.
    fn clear(&mut self) -> bool {
        let state = Arc::clone(&self.state);
        let Ok(memory) = state.device.virtual_memory() else { return false };
        self.mappings.retain(|(at, bytes)| {
            // SAFETY: 2. the owner has waited for the device, or no caller ever received the addresses.
            unsafe { memory.unmap(*at, *bytes) }.is_err()
        });
        self.destroy_handles(memory);
        if !self.released && self.mappings.is_empty() {
            // SAFETY: 1. the addresses were reserved for this value, and nothing is mapped there any more.
            self.released = unsafe { memory.release(self.start, self.bytes) }.is_ok();
        }
        self.released && self.handles.is_empty()
    }
}

impl<D: Device> Drop for MappedChunks<D> {
    /// No caller ever received the addresses, or nothing is left. A destructor cannot report a failure, so it retries
    /// once.
    fn drop(&mut self) {
        if !self.clear() && !self.clear() {
            let (mappings, handles) = (std::mem::take(&mut self.mappings), std::mem::take(&mut self.handles));
            let (state, unclosed) = (Arc::clone(&self.state), Arc::clone(&self.unclosed));
            let left = Self { state, unclosed, mappings, handles, ..*self };
            self.unclosed.0.lock().push(ImportLease { memory: ImportKind::Chunks(left), connection: None });
        }
    }
}

/// Checks that memory of the device `exporter` can be opened on `device`.
fn check_device(exporter: DeviceTag, device: &DeviceInfo) -> Result<(), IpcError> {
    let own = device_tag(device);
    if exporter.vendor != own.vendor {
        return Err(IpcError::OtherVendor { here: device.vendor });
    }
    // A driver that supports no UUIDs reports zero.
    let unknown = [0; 16];
    if exporter.uuid != own.uuid && exporter.uuid != unknown && own.uuid != unknown {
        return Err(IpcError::OtherDevice);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
