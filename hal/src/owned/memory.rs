//! Device memory with an owner.

use super::closing::{closes, end_once};
use crate::{Device, DevicePtr, Result};

/// Device memory with an owner.
#[derive(Debug)]
pub struct OwnedMemory<D: Device> {
    device: D,
    ptr: DevicePtr,
    bytes: u64,
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

    fn free(&mut self) -> Result<()> {
        // Not every driver's free waits for every stream, so the owner does.
        // SAFETY: 1. the address was given to this owner and is freed once. 2. The wait found that no work runs.
        end_once(&self.device, &mut self.freed, || unsafe { self.device.free(self.ptr) })
    }
}

closes! {
    /// Waits for the device, then frees the memory.
    OwnedMemory<D> by free, keeps
}
