//! Virtual memory, checked.

use std::os::fd::{BorrowedFd, OwnedFd};

use cachette_hal::{Access, Backing, Call, Device, DevicePtr, FabricHandle, Result, Sharing, VirtualMemory};

use super::{Checked, Resource};
use cachette_hal::forward_virtual_memory_facts;

impl<D: Device> VirtualMemory for Checked<D> {
    forward_virtual_memory_facts!();

    fn reserve(&self, bytes: u64, wish: Option<DevicePtr>) -> Result<DevicePtr> {
        let start = self.device.virtual_memory()?.reserve(bytes, wish)?;
        self.watch.note(Call::Reserve, Resource::Reservation, start.address(), bytes);
        Ok(start)
    }

    unsafe fn release(&self, start: DevicePtr, bytes: u64) -> Result<()> {
        let group = self.device.virtual_memory()?;
        if bytes == 0 {
            // SAFETY: a size of zero is an error everywhere and does nothing.
            return unsafe { group.release(start, bytes) };
        }
        let by = self.watch.origin(Call::Release);
        let ending = self.watch.check(|ledger| ledger.begin_release(start.address(), bytes, by))?;
        // SAFETY: 1. The ledger contains exactly this reservation, without mappings.
        let answer = unsafe { group.release(start, bytes) };
        self.watch.finish_end(ending, answer)
    }

    fn create_backing(&self, bytes: u64, sharing: Sharing, rdma: bool) -> Result<Backing> {
        let backing = self.device.virtual_memory()?.create_backing(bytes, sharing, rdma)?;
        self.note_backing(Call::CreateBacking, &backing);
        Ok(backing)
    }

    unsafe fn destroy_backing(&self, backing: Backing) -> Result<()> {
        let group = self.device.virtual_memory()?;
        let key = (Resource::Backing, backing.raw() as u64);
        // SAFETY: 1. The ledger lists `backing` as live.
        self.watch.end(Call::DestroyBacking, key, || unsafe { group.destroy_backing(backing) })
    }

    unsafe fn map(&self, at: DevicePtr, backing: &Backing) -> Result<()> {
        let group = self.device.virtual_memory()?;
        self.check_backing(Call::Map, backing)?;
        if backing.bytes() == 0 {
            // SAFETY: 1. Checked above.
            return unsafe { group.map(at, backing) };
        }
        let by = self.watch.origin(Call::Map);
        let sequence = by.sequence;
        self.watch.check(|ledger| ledger.begin_map(at.address(), backing.bytes(), by))?;
        // SAFETY: 1. Checked above.
        let answer = unsafe { group.map(at, backing) };
        if answer.is_err() {
            let key = (Resource::Mapping, at.address());
            self.watch.ledger().undo_note(key, sequence);
        }
        answer
    }

    unsafe fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        let group = self.device.virtual_memory()?;
        if bytes == 0 {
            // SAFETY: a size of zero is an error everywhere and does nothing.
            return unsafe { group.unmap(at, bytes) };
        }
        let by = self.watch.origin(Call::Unmap);
        let ending = self.watch.check(|ledger| ledger.begin_unmap(at.address(), bytes, by))?;
        // SAFETY: 2. The caller's promise.
        let answer = unsafe { group.unmap(at, bytes) };
        self.watch.finish_end(ending, answer)
    }

    unsafe fn set_access(&self, at: DevicePtr, bytes: u64, access: &[Access]) -> Result<()> {
        let group = self.device.virtual_memory()?;
        let call = Call::SetAccess;
        self.watch.check(|ledger| ledger.tiled(call, at.address(), bytes))?;
        // SAFETY: 2. The caller's promise.
        unsafe { group.set_access(at, bytes, access) }
    }

    unsafe fn export_backing(&self, backing: &Backing) -> Result<OwnedFd> {
        let group = self.device.virtual_memory()?;
        self.check_backing(Call::ExportBacking, backing)?;
        // SAFETY: 1. Checked above.
        unsafe { group.export_backing(backing) }
    }

    fn import_backing(&self, fd: BorrowedFd<'_>, bytes: u64) -> Result<Backing> {
        let backing = self.device.virtual_memory()?.import_backing(fd, bytes)?;
        self.note_backing(Call::ImportBacking, &backing);
        Ok(backing)
    }

    unsafe fn export_fabric(&self, backing: &Backing) -> Result<FabricHandle> {
        let group = self.device.virtual_memory()?;
        self.check_backing(Call::ExportFabric, backing)?;
        // SAFETY: 1. Checked above.
        unsafe { group.export_fabric(backing) }
    }

    fn import_fabric(&self, handle: &FabricHandle, bytes: u64) -> Result<Backing> {
        let backing = self.device.virtual_memory()?.import_fabric(handle, bytes)?;
        self.note_backing(Call::ImportFabric, &backing);
        Ok(backing)
    }
}

impl<D: Device> Checked<D> {
    /// Records a backing that the driver has just created.
    fn note_backing(&self, call: Call, backing: &Backing) {
        self.watch.note(call, Resource::Backing, backing.raw() as u64, backing.bytes());
    }

    /// Fails unless the backing is live.
    fn check_backing(&self, call: Call, backing: &Backing) -> Result<()> {
        self.watch.used(call, Resource::Backing, backing.raw())
    }
}
