//! Virtual memory, checked.

use std::os::fd::{BorrowedFd, OwnedFd};

use cachette_hal::{Access, Backing, Call, Device, DevicePtr, FabricHandle, Result, Sharing, VirtualMemory};

use super::table::{creates, ends, uses};
use super::{Checked, Resource};
use cachette_hal::forward_virtual_memory_facts;

impl<D: Device> VirtualMemory for Checked<D> {
    forward_virtual_memory_facts!();

    creates! {
        [virtual_memory]
        fn reserve(bytes: u64, wish: Option<DevicePtr>) -> DevicePtr as made:
            Reserve, Reservation, made.address(), bytes;
        fn create_backing(bytes: u64, sharing: Sharing, rdma: bool) -> Backing as made:
            CreateBacking, Backing, made.raw() as u64, made.bytes();
        fn import_backing(fd: BorrowedFd<'_>, bytes: u64) -> Backing as made:
            ImportBacking, Backing, made.raw() as u64, made.bytes();
        fn import_fabric(handle: &FabricHandle, bytes: u64) -> Backing as made:
            ImportFabric, Backing, made.raw() as u64, made.bytes();
    }

    uses! {
        [virtual_memory]
        fn set_access(at: DevicePtr, bytes: u64, access: &[Access]) -> (): SetAccess, check_tiled(at, bytes);
        fn export_backing(backing: &Backing) -> OwnedFd: ExportBacking, check_backing(backing);
        fn export_fabric(backing: &Backing) -> FabricHandle: ExportFabric, check_backing(backing);
    }

    ends! {
        [virtual_memory]
        fn destroy_backing(backing: Backing): DestroyBacking, Backing, backing.raw() as u64;
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
}

impl<D: Device> Checked<D> {
    fn check_tiled(&self, call: Call, at: DevicePtr, bytes: u64) -> Result<()> {
        self.watch.check(|ledger| ledger.tiled(call, at.address(), bytes))
    }

    fn check_backing(&self, call: Call, backing: &Backing) -> Result<()> {
        self.watch.used(call, Resource::Backing, backing.raw())
    }
}
