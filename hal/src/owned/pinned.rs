//! Page-locked host memory with an owner.

use std::ptr::NonNull;

use super::closing::{closes, end_once};
use crate::{Device, DevicePtr, Result};

/// Page-locked host memory with an owner.
///
/// It returns pointers, not slices: the device may write the bytes at any time.
#[derive(Debug)]
pub struct OwnedPinned<D: Device> {
    device: D,
    ptr: NonNull<u8>,
    bytes: usize,
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

    /// The host address of the first byte.
    #[must_use]
    pub const fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Bytes requested.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The device address of the first byte.
    pub fn device_address(&self) -> Result<DevicePtr> {
        self.device.host_memory()?.device_address(self.ptr)
    }

    fn free(&mut self) -> Result<()> {
        // SAFETY: 1. the memory was given to this owner and is freed once. 2. The wait found that no work runs.
        end_once(&self.device, &mut self.freed, || unsafe { self.device.host_memory()?.free_pinned(self.ptr) })
    }
}

closes! {
    /// Waits for the device, then frees the memory.
    OwnedPinned<D> by free, keeps
}
