//! Memory of other processes, opened in this one.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use cachette_hal::{self as hal, Device, DevicePtr, IpcToken};
use cachette_ipc::{Connection, Exporter, Handle, OpenError, OpenReply};

use super::check_device;
use super::error::IpcError;
use super::export::ExportedBlock;
use super::mapped::MappedChunks;
use crate::device_state::DeviceState;
use crate::error::Error;
use crate::sync::Mutex;

/// What an allocator shares with other processes.
#[derive(Debug)]
pub(crate) struct IpcState<D: Device> {
    pub(crate) exporter: Exporter<ExportedBlock<D>>,
    imports: Mutex<ImportTable<D>>,
}

impl<D: Device> Default for IpcState<D> {
    fn default() -> Self {
        let imports = Mutex::new(ImportTable { opened: HashMap::new(), segments: HashMap::new() });
        Self { exporter: Exporter::default(), imports }
    }
}

/// Memory of another process.
///
/// It is a handle: clones name the same memory, and opening the same memory again gives the same addresses. The drop of
/// the last one waits for the device and closes the memory. So it must not be dropped while a stream is captured.
///
/// The memory stays while this value lives, even if its allocation is freed. Memory in chunks stays even if the
/// exporter ends.
#[derive(Debug)]
pub struct ImportedMemory<D: Device> {
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

    /// Bytes that may be used.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.opened.bytes
    }

    /// Whether the exporter still keeps the memory for this process. Always false in a forked child.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        !self.opened.state.origin.is_inherited() && self.opened.connection.is_alive()
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
    memory: ImportKind<D>,
    // Last, so that it is closed when this process no longer maps the memory: then the exporter may reuse the block.
    connection: Connection,
}

impl<D: Device> Drop for OpenMemory<D> {
    fn drop(&mut self) {
        // In a forked child the memory and the connection belong to the parent.
        if self.state.origin.is_inherited() {
            self.state.origin.keep(&self.state);
            self.connection.detach();
            return;
        }
        // It fails on a lost device, where no work runs any more.
        let _ = self.state.device.synchronize_device();
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

/// A segment of another process, opened once for all blocks in it.
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
        if !self.state.origin.is_inherited() && self.close().is_err() {
            let _ = self.close();
        }
    }
}

#[derive(Debug)]
struct ImportTable<D: Device> {
    opened: HashMap<Vec<u8>, Weak<OpenMemory<D>>>,
    segments: HashMap<IpcToken, Weak<OpenSegment<D>>>,
}

impl<D: Device> IpcState<D> {
    /// Opens the memory that a handle names, or finds it open.
    pub(super) fn open(&self, state: &Arc<DeviceState<D>>, bytes: &[u8]) -> Result<ImportedMemory<D>, Error> {
        let handle = Handle::decode(bytes).map_err(IpcError::from)?;
        check_device(handle.device, state.device.info())?;
        if let Some(opened) = self.imports.lock().find(bytes) {
            return Ok(ImportedMemory { opened });
        }
        let (connection, reply) = Connection::open(&handle).map_err(IpcError::from)?;
        let _relaxed = state.relax_capture();
        let mapped = match reply {
            OpenReply::Chunks(count) => Some(map_all(state, &connection, &handle, count)?),
            OpenReply::Token(_) | OpenReply::Local(_) => None,
        };
        let mut table = self.imports.lock();
        // Another thread may have opened it meanwhile: then this import is dropped.
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
                // Under the lock, so that no peer is allowed between this and the entry in the table.
                mapped.grant()?;
                (mapped.address(), ImportKind::Chunks(mapped))
            }
        };
        let address = handle.span.address(start).ok_or(IpcError::Open(OpenError::Damaged))?;
        let state = Arc::clone(state);
        let opened = Arc::new(OpenMemory { state, address, bytes: handle.span.bytes, memory, connection });
        table.opened.insert(bytes.to_vec(), Arc::downgrade(&opened));
        drop(table);
        Ok(ImportedMemory { opened })
    }

    /// Lets the peers of the device access all mapped memory.
    pub(crate) fn grant(&self) -> hal::Result<()> {
        let all: Vec<_> = self.imports.lock().opened.values().filter_map(Weak::upgrade).collect();
        all.iter().try_for_each(|opened| match &opened.memory {
            ImportKind::Chunks(mapped) => mapped.grant(),
            ImportKind::Segment(_) | ImportKind::Local => Ok(()),
        })
    }
}

impl<D: Device> ImportTable<D> {
    /// The memory that is open by a handle. Removes entries of closed memory.
    fn find(&mut self, handle: &[u8]) -> Option<Arc<OpenMemory<D>>> {
        self.opened.retain(|_, opened| opened.strong_count() > 0);
        self.segments.retain(|_, segment| segment.strong_count() > 0);
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

/// Maps all chunks side by side, without access yet.
fn map_all<D: Device>(
    state: &Arc<DeviceState<D>>,
    connection: &Connection,
    handle: &Handle,
    count: u32,
) -> Result<MappedChunks<D>, Error> {
    // First, so that the exporter works while this process reserves addresses.
    let mut batches = connection.batches(count).map_err(IpcError::from)?;
    let mut mapped = MappedChunks::reserve(state, handle.span.extent)?;
    // The descriptors of a batch are closed before those of the next are received.
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
