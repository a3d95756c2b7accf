//! Page-locked host memory with an owner.

use std::ptr::NonNull;

use super::closing::{NotClosed, wait_for_work};
use crate::{Device, DevicePtr, Result};

/// Page-locked host memory with an owner.
///
/// It returns pointers, not slices: the device may write the bytes at any time.
#[derive(Debug)]
pub struct OwnedPinned<D: Device> {
    device: D,
    ptr: NonNull<u8>,
    bytes: usize,
    /// Whether the memory was freed.
    freed: bool,
}

// SAFETY: the pointer is only a number here; the memory belongs to the owner, not to a thread.
unsafe impl<D: Device> Send for OwnedPinned<D> {}
// SAFETY: no method reads or writes the memory behind the pointer.
unsafe impl<D: Device> Sync for OwnedPinned<D> {}

impl<D: Device> OwnedPinned<D> {
    /// Allocates `bytes` bytes of page-locked memory.
    pub fn allocate(device: D, bytes: usize) -> Result<Self> {
        let ptr = device.host_memory()?.allocate_pinned(bytes)?;
        Ok(Self { device, ptr, bytes, freed: false })
    }

    /// The first byte, as the host sees it.
    #[must_use]
    pub const fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Bytes requested.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first byte, as the device sees it.
    pub fn device_address(&self) -> Result<DevicePtr> {
        self.device.host_memory()?.device_address(self.ptr)
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
        let waited = wait_for_work(&self.device)?;
        let memory = self.device.host_memory()?;
        // SAFETY: 1. the memory was given to this owner and is freed once. 2. The wait found that no work runs.
        let freed = unsafe { memory.free_pinned(self.ptr) };
        self.freed = freed.is_ok();
        waited.and(freed)
    }
}

impl<D: Device> Drop for OwnedPinned<D> {
    fn drop(&mut self) {
        // A destructor cannot return an error; `close` does.
        let _ = self.free();
    }
}
