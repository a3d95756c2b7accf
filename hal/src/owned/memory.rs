//! Device memory with an owner.

use super::closing::{NotClosed, wait_for_work};
use crate::{Device, DevicePtr, Result};

/// Device memory with an owner.
#[derive(Debug)]
pub struct OwnedMemory<D: Device> {
    device: D,
    ptr: DevicePtr,
    bytes: u64,
    /// Whether the memory was freed.
    freed: bool,
}

impl<D: Device> OwnedMemory<D> {
    /// Allocates `bytes` bytes on `device`.
    pub fn allocate(device: D, bytes: u64) -> Result<Self> {
        let ptr = device.allocate(bytes)?;
        Ok(Self { device, ptr, bytes, freed: false })
    }

    /// The first address.
    #[must_use]
    pub const fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// Bytes requested.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits for the device, then frees the memory.
    ///
    /// On failure the error holds the owner.
    pub fn close(mut self) -> Result<(), NotClosed<Self>> {
        match self.free() {
            Ok(()) => Ok(()),
            Err(error) => Err(NotClosed { owner: self, error }),
        }
    }

    fn free(&mut self) -> Result<()> {
        if self.freed {
            return Ok(());
        }
        // Not every driver's free waits for every stream, so the owner does.
        let waited = wait_for_work(&self.device)?;
        // SAFETY: 1. the address was given to this owner and is freed once. 2. The wait found that no work runs.
        let freed = unsafe { self.device.free(self.ptr) };
        self.freed = freed.is_ok();
        waited.and(freed)
    }
}

impl<D: Device> Drop for OwnedMemory<D> {
    fn drop(&mut self) {
        // A destructor cannot return an error; `close` does.
        let _ = self.free();
    }
}
