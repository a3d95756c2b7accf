//! Reservations, backings and mappings with an owner.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::closing::{closes, end_once};
use crate::{Access, Backing, Device, DevicePtr, FabricHandle, Result, Sharing};

/// Reserved addresses with an owner.
#[derive(Debug)]
pub struct OwnedReservation<D: Device> {
    device: D,
    start: DevicePtr,
    bytes: u64,
    released: bool,
}

impl<D: Device> OwnedReservation<D> {
    /// Reserves `bytes` addresses, anywhere.
    pub fn reserve(device: D, bytes: u64) -> Result<Self> {
        let start = device.virtual_memory()?.reserve(bytes, None)?;
        Ok(Self { device, start, bytes, released: false })
    }

    /// The first address.
    #[must_use]
    pub const fn start(&self) -> DevicePtr {
        self.start
    }

    /// Bytes reserved.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Maps the whole of `backing`, `offset` bytes from the start, without access rights.
    pub fn map<E: Device>(&self, offset: u64, backing: &OwnedBacking<E>) -> Result<OwnedMapping<'_, D>> {
        let at = self.start.add(offset);
        let memory = self.device.virtual_memory()?;
        // SAFETY: 1. the backing's owner is alive.
        unsafe { memory.map(at, backing.get()) }?;
        Ok(OwnedMapping { reservation: self, at, bytes: backing.get().bytes(), unmapped: false })
    }

    /// Waits for the device, then sets the access rights of a range of whole mappings.
    pub fn set_access(&self, offset: u64, bytes: u64, access: &[Access]) -> Result<()> {
        self.device.synchronize_device()?;
        let memory = self.device.virtual_memory()?;
        // SAFETY: 2. the device is idle.
        unsafe { memory.set_access(self.start.add(offset), bytes, access) }
    }

    fn release(&mut self) -> Result<()> {
        if self.released {
            return Ok(());
        }
        let memory = self.device.virtual_memory()?;
        // SAFETY: 1. the range was reserved by this owner and is released once.
        unsafe { memory.release(self.start, self.bytes) }?;
        self.released = true;
        Ok(())
    }
}

closes! {
    /// Releases the addresses and returns the result.
    OwnedReservation<D> by release
}

/// A mapping with an owner; it cannot outlive its reservation.
#[derive(Debug)]
pub struct OwnedMapping<'r, D: Device> {
    reservation: &'r OwnedReservation<D>,
    at: DevicePtr,
    bytes: u64,
    unmapped: bool,
}

impl<D: Device> OwnedMapping<'_, D> {
    /// The first address.
    #[must_use]
    pub const fn ptr(&self) -> DevicePtr {
        self.at
    }

    /// Bytes mapped.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits for the device, then sets the access rights of the mapping.
    pub fn set_access(&self, access: &[Access]) -> Result<()> {
        let offset = self.at.address() - self.reservation.start.address();
        self.reservation.set_access(offset, self.bytes, access)
    }

    fn unmap(&mut self) -> Result<()> {
        let device = &self.reservation.device;
        // SAFETY: 2. the wait found that no work runs.
        end_once(device, &mut self.unmapped, || unsafe { device.virtual_memory()?.unmap(self.at, self.bytes) })
    }
}

closes! {
    /// Waits for the device, then unmaps.
    OwnedMapping<'_, D> by unmap, keeps
}

/// Physical memory with an owner.
#[derive(Debug)]
pub struct OwnedBacking<D: Device> {
    device: D,
    /// `None` only after [`close`](Self::close).
    backing: Option<Backing>,
}

impl<D: Device> OwnedBacking<D> {
    /// Creates `bytes` bytes of physical memory.
    pub fn create(device: D, bytes: u64, sharing: Sharing) -> Result<Self> {
        let backing = device.virtual_memory()?.create_backing(bytes, sharing, false)?;
        Ok(Self { device, backing: Some(backing) })
    }

    /// Imports a backing that this or another process has exported.
    pub fn import(device: D, fd: BorrowedFd<'_>, bytes: u64) -> Result<Self> {
        let backing = device.virtual_memory()?.import_backing(fd, bytes)?;
        Ok(Self { device, backing: Some(backing) })
    }

    /// Imports a backing that this or another process of the fabric has exported.
    pub fn import_fabric(device: D, handle: &FabricHandle, bytes: u64) -> Result<Self> {
        let backing = device.virtual_memory()?.import_fabric(handle, bytes)?;
        Ok(Self { device, backing: Some(backing) })
    }

    /// The backing, as an argument of driver calls.
    ///
    /// # Panics
    ///
    /// Never: only `close` and the destructor empty an owner.
    pub const fn get(&self) -> &Backing {
        self.backing.as_ref().expect("the owner holds its backing until it is dropped")
    }

    /// Exports the backing as a descriptor for another process.
    pub fn export(&self) -> Result<OwnedFd> {
        let memory = self.device.virtual_memory()?;
        // SAFETY: 1. this owner has the backing.
        unsafe { memory.export_backing(self.get()) }
    }

    /// Exports the backing as a handle for another process of the fabric.
    pub fn export_fabric(&self) -> Result<FabricHandle> {
        let memory = self.device.virtual_memory()?;
        // SAFETY: 1. this owner has the backing.
        unsafe { memory.export_fabric(self.get()) }
    }

    fn destroy(&mut self) -> Result<()> {
        let Some(backing) = self.backing.take() else { return Ok(()) };
        let memory = self.device.virtual_memory()?;
        // SAFETY: 1. this device created the handle, which leaves its owner here.
        unsafe { memory.destroy_backing(backing) }
    }
}

closes! {
    /// Destroys the handle and returns the result; mappings stay.
    OwnedBacking<D> by destroy
}
