//! Device memory with an owner.

use crate::{Device, DevicePtr, Result};

/// Device memory with an owner.
#[derive(Debug)]
pub struct OwnedMemory<D: Device> {
    device: D,
    ptr: DevicePtr,
    bytes: u64,
    /// Whether [`close`](Self::close) has freed it already.
    freed: bool,
}

impl<D: Device> OwnedMemory<D> {
    /// Takes `bytes` bytes from `device`.
    pub fn allocate(device: D, bytes: u64) -> Result<Self> {
        let ptr = device.allocate(bytes)?;
        Ok(Self {
            device,
            ptr,
            bytes,
            freed: false,
        })
    }

    /// The first address.
    #[must_use]
    pub const fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// Bytes asked for.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits for the device, frees the memory, and answers.
    pub fn close(mut self) -> Result<()> {
        self.free()
    }

    fn free(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.freed, true) {
            return Ok(());
        }
        // Not every driver's free waits for every stream, so the owner does.
        let idle = self.device.synchronize_device();
        // SAFETY: 1. the address was given to this owner and is freed once. 2. The device is idle, or
        // lost, in which case nothing runs on it any more.
        let freed = unsafe { self.device.free(self.ptr) };
        idle.and(freed)
    }
}

impl<D: Device> Drop for OwnedMemory<D> {
    fn drop(&mut self) {
        // A destructor has nobody to tell; `close` has.
        let _ = self.free();
    }
}
