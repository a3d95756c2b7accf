//! Chunks of another process, mapped side by side in this one.

use std::os::fd::AsFd;
use std::sync::Arc;

use cachette_hal::{self as hal, Backing, Device, DevicePtr, FabricHandle, VirtualMemory};
use cachette_ipc::{ChunkHandle, ExportedChunk};

use crate::device_state::DeviceState;

/// Chunks of another process, mapped side by side in exactly as many addresses as they need.
#[derive(Debug)]
pub(super) struct MappedChunks<D: Device> {
    state: Arc<DeviceState<D>>,
    /// `None` once the addresses are released.
    start: Option<DevicePtr>,
    bytes: u64,
    /// Address and bytes of each mapping, in order, without gaps until they are unmapped.
    mappings: Vec<(DevicePtr, u64)>,
    /// Handles that could not be destroyed yet. The mappings keep the memory.
    handles: Vec<Backing>,
}

impl<D: Device> MappedChunks<D> {
    pub(super) fn reserve(state: &Arc<DeviceState<D>>, bytes: u64) -> hal::Result<Self> {
        let start = state.device.virtual_memory()?.reserve(bytes, None)?;
        Ok(Self { state: Arc::clone(state), start: Some(start), bytes, mappings: Vec::new(), handles: Vec::new() })
    }

    /// The first address; zero once the addresses are released.
    pub(super) fn address(&self) -> u64 {
        self.start.map_or(0, DevicePtr::address)
    }

    pub(super) fn missing(&self) -> u64 {
        // There are no gaps, so the last mapping gives the end.
        let end = self.mappings.last().map(|(at, bytes)| at.address() + bytes);
        self.bytes - end.map_or(0, |end| end - self.address())
    }

    /// Maps a chunk behind the others, without access yet. The caller has checked that it fits.
    pub(super) fn add(&mut self, chunk: &ExportedChunk) -> hal::Result<()> {
        let state = Arc::clone(&self.state);
        let memory = state.device.virtual_memory()?;
        let backing = match &chunk.handle {
            ChunkHandle::Descriptor(descriptor) => memory.import_backing(descriptor.as_fd(), chunk.bytes),
            ChunkHandle::Fabric(name) => memory.import_fabric(&FabricHandle(*name), chunk.bytes),
        }?;
        let at = DevicePtr::new(self.address() + self.bytes - self.missing());
        let at = at.ok_or(hal::Error::new(hal::ErrorKind::InvalidValue, "map"));
        let mapped = at.and_then(|at| {
            // SAFETY: 1. the backing was imported just now.
            unsafe { memory.map(at, &backing) }?;
            Ok(at)
        });
        self.handles.push(backing);
        self.mappings.push((mapped?, chunk.bytes));
        self.destroy_handles(memory);
        Ok(())
    }

    pub(super) fn grant(&self) -> hal::Result<()> {
        let Some(start) = self.start else { return Ok(()) };
        let memory = self.state.device.virtual_memory()?;
        // SAFETY: 2. it only adds access.
        unsafe { memory.set_access(start, self.bytes, &self.state.access()) }
    }

    /// Destroys the handles of mapped chunks. A failure is retried at the drop.
    fn destroy_handles(&mut self, memory: &dyn VirtualMemory) {
        let handles = std::mem::take(&mut self.handles);
        for handle in handles {
            let (raw, bytes) = (handle.raw(), handle.bytes());
            // SAFETY: 1. this device imported it, and it leaves the list here.
            let destroyed = unsafe { memory.destroy_backing(handle) };
            if destroyed.is_err() {
                self.handles.push(Backing::from_raw(raw, bytes));
            }
        }
    }

    /// Unmaps the chunks, and releases the addresses if that succeeded for all.
    fn clear(&mut self, memory: &dyn VirtualMemory) {
        self.mappings.retain(|(at, bytes)| {
            // SAFETY: 2. the owner has waited for the device, or the addresses were never given out.
            unsafe { memory.unmap(*at, *bytes) }.is_err()
        });
        self.destroy_handles(memory);
        if let Some(start) = self.start
            && self.mappings.is_empty()
        {
            // SAFETY: 1. this value reserved it, and nothing is mapped there any more.
            let released = unsafe { memory.release(start, self.bytes) };
            if released.is_ok() {
                self.start = None;
            }
        }
    }
}

impl<D: Device> Drop for MappedChunks<D> {
    /// A destructor cannot report a failure, so it retries once.
    fn drop(&mut self) {
        if self.state.origin.is_inherited() {
            return;
        }
        let state = Arc::clone(&self.state);
        let Ok(memory) = state.device.virtual_memory() else { return };
        self.clear(memory);
        self.clear(memory);
    }
}
