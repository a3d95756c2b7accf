//! Chunks of another process, mapped side by side in this one.

use std::os::fd::AsFd;
use std::sync::Arc;

use cachette_hal::{self as hal, Backing, Device, DevicePtr, VirtualMemory};

use super::fetch::Piece;
use crate::device_state::DeviceState;
use crate::elastic::chunk_table::{Exported, memory_of};

/// Chunks of another process, mapped side by side in just as many addresses as they need.
#[derive(Debug)]
pub(super) struct Mapped<D: Device> {
    common: Arc<DeviceState<D>>,
    /// `None` once they are released.
    start: Option<DevicePtr>,
    bytes: u64,
    /// What is mapped, in order of address; without gaps until it is unmapped.
    mappings: Vec<(DevicePtr, u64)>,
    /// Handles that are not needed any more, as the mappings keep the memory, and that could not be given back yet.
    handles: Vec<Backing>,
}

impl<D: Device> Mapped<D> {
    /// Reserves addresses.
    pub(super) fn reserve(common: &Arc<DeviceState<D>>, bytes: u64) -> hal::Result<Self> {
        let start = memory_of(&common.device)?.reserve(bytes, None)?;
        Ok(Self { common: Arc::clone(common), start: Some(start), bytes, mappings: Vec::new(), handles: Vec::new() })
    }

    /// The first address; zero once they are released.
    pub(super) fn address(&self) -> u64 {
        self.start.map_or(0, DevicePtr::address)
    }

    /// Bytes that are still to be mapped.
    pub(super) fn missing(&self) -> u64 {
        // They lie without gaps, so the last tells of all.
        let end = self.mappings.last().map(|(at, bytes)| at.address() + bytes);
        self.bytes - end.map_or(0, |end| end - self.address())
    }

    /// Maps a chunk behind those that are there, for nobody yet. There is room for it.
    pub(super) fn add(&mut self, piece: &Piece) -> hal::Result<()> {
        let common = Arc::clone(&self.common);
        let memory = memory_of(&common.device)?;
        let backing = match &piece.name {
            Exported::Descriptor(descriptor) => memory.import_backing(descriptor.as_fd(), piece.bytes),
            Exported::Fabric(name) => memory.import_fabric(name, piece.bytes),
        }?;
        let filled = self.bytes - self.missing();
        let at = DevicePtr::new(self.address() + filled);
        let at = at.ok_or(hal::Error::new(hal::ErrorKind::InvalidValue, "map"));
        let mapped = at.and_then(|at| {
            // SAFETY: 1. the backing was made just now.
            unsafe { memory.map(at, &backing) }?;
            Ok(at)
        });
        self.handles.push(backing);
        self.mappings.push((mapped?, piece.bytes));
        self.give_handles_back(memory);
        Ok(())
    }

    /// Lets the device and its peers touch everything.
    pub(super) fn grant(&self) -> hal::Result<()> {
        let Some(start) = self.start else {
            return Ok(());
        };
        let memory = memory_of(&self.common.device)?;
        // SAFETY: 2. a right is given, not taken away.
        unsafe { memory.set_access(start, self.bytes, &self.common.access()) }
    }

    /// Gives back the handles that the mappings stand for. What fails is tried again at the end.
    fn give_handles_back(&mut self, memory: &dyn VirtualMemory) {
        let handles = std::mem::take(&mut self.handles);
        for handle in handles {
            let (raw, bytes) = (handle.raw(), handle.bytes());
            // SAFETY: 1. it was made by this device and leaves the list here.
            let destroyed = unsafe { memory.destroy_backing(handle) };
            if destroyed.is_err() {
                self.handles.push(Backing::from_raw(raw, bytes));
            }
        }
    }

    /// Unmaps everything that can be, and then releases the addresses.
    fn clear(&mut self, memory: &dyn VirtualMemory) {
        self.mappings.retain(|(at, bytes)| {
            // SAFETY: 2. its owner has waited for the device, or nobody was told of the addresses.
            unsafe { memory.unmap(*at, *bytes) }.is_err()
        });
        self.give_handles_back(memory);
        if let Some(start) = self.start
            && self.mappings.is_empty()
        {
            // SAFETY: 1. it was reserved for this, and nothing is mapped there any more.
            let released = unsafe { memory.release(start, self.bytes) };
            if released.is_ok() {
                self.start = None;
            }
        }
    }
}

impl<D: Device> Drop for Mapped<D> {
    /// A destructor has nobody to tell of a failure; it tries once more what failed.
    fn drop(&mut self) {
        if self.common.origin.is_inherited() {
            return;
        }
        let common = Arc::clone(&self.common);
        let Ok(memory) = memory_of(&common.device) else {
            return;
        };
        for _ in 0..2 {
            self.clear(memory);
        }
    }
}
