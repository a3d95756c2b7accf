//! Virtual memory: addresses and physical memory are separate.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use cachette_hal::{
    Access, Backing, Call, Device, DevicePtr, ErrorKind, FabricHandle, Granularity, Reason, Result, Sharing, StreamRef,
    VirtualMemory,
};

use crate::backing::{BACKING, BackingMemory};
use crate::checks::{check, error, fail};
use crate::defect::Defect;
use crate::device::{HostDevice, device_ptr};
use crate::mapping::{Memory, Writes, kind_of};
use crate::space::{Kind, Mapping, Range, Reservation, Space, set_bit};

impl HostDevice {
    /// Rejects zero, and values that are not multiples of the smallest granularity.
    fn check_granularity(&self, call: Call, value: u64) -> Result<()> {
        let minimum = self.machine().config.granularity.minimum;
        check(value.is_multiple_of(minimum), call, ErrorKind::InvalidValue)
    }

    pub(crate) fn find_backing(&self, call: Call, backing: &Backing) -> Result<Arc<BackingMemory>> {
        match self.unit().backings.lock().get(&backing.raw()) {
            Some(found) if found.bytes == backing.bytes() => Ok(Arc::clone(found)),
            _ => fail(call, ErrorKind::InvalidHandle),
        }
    }

    pub(crate) fn enter_backing(&self, memory: BackingMemory) -> Backing {
        let (handle, bytes) = (self.machine().handle(), memory.bytes);
        self.unit().backings.lock().insert(handle, Arc::new(memory));
        Backing::from_raw(handle, bytes)
    }

    /// Waits for the default stream if the device is configured so.
    fn wait_if_mapping_waits(&self) -> Result<()> {
        if self.machine().config.habits.mapping_waits {
            // SAFETY: 1. the default stream always lives.
            unsafe { self.synchronize(StreamRef::DEFAULT) }?;
        }
        Ok(())
    }

    /// The mappings of this device that cover exactly this range, by address.
    fn whole_mappings(&self, space: &Space, at: u64, bytes: u64) -> Option<Vec<u64>> {
        let end = at.checked_add(bytes)?;
        let mut next = at;
        let mut starts = Vec::new();
        while next < end {
            let range = space.ranges.get(&next).filter(|range| range.owner == self.index)?;
            let Kind::Mapping(_) = range.kind else { return None };
            starts.push(next);
            next += range.bytes;
        }
        (next == end).then_some(starts)
    }

    /// Returns the devices whose rights change, with their new rights to read and to write.
    fn rights(&self, access: &[Access]) -> Result<Vec<(usize, bool, bool)>> {
        let call = Call::SetAccess;
        let right = |access: &Access| {
            let (ordinal, reads, writes) = match *access {
                Access::None(ordinal) => (ordinal, false, false),
                Access::Read(ordinal) => (ordinal, true, false),
                Access::ReadWrite(ordinal) => (ordinal, true, true),
                _ => return fail(call, ErrorKind::Unsupported),
            };
            let device = self.peer(call, ordinal)?;
            check(device == self.index || !reads || self.machine().config.peers, call, ErrorKind::Unsupported)?;
            Ok((device, reads, writes))
        };
        access.iter().map(right).collect()
    }
}

impl VirtualMemory for HostDevice {
    fn granularity(&self) -> Granularity {
        self.machine().config.granularity
    }

    fn shares(&self, sharing: Sharing) -> Result<(), Reason> {
        self.sharing_obstacle(sharing).map_or(Ok(()), Err)
    }

    fn aliases(&self) -> Result<(), Reason> {
        unless(self.machine().config.habits.no_aliases, "HostConfig::without_aliases")
    }

    fn frees_under_reservation(&self) -> Result<(), Reason> {
        unless(self.machine().config.habits.withholds, "HostConfig::withholding")
    }

    fn mixes_sizes(&self) -> Result<(), Reason> {
        unless(self.machine().config.habits.one_size, "HostConfig::mapping_one_size")
    }

    fn maps_without_wait(&self) -> Result<(), Reason> {
        unless(self.machine().config.habits.mapping_waits, "HostConfig::mapping_with_wait")
    }

    fn reserve(&self, bytes: u64, wish: Option<DevicePtr>) -> Result<DevicePtr> {
        let call = self.enter_mapping(Call::Reserve)?;
        self.check_size(call, bytes)?;
        self.check_granularity(call, bytes)?;
        let (machine, wish) = (self.machine(), wish.map(DevicePtr::address));
        let alignment = machine.config.granularity.recommended;
        let no_memory = |error| self.no_memory(call, kind_of(error));
        let mut space = machine.write_space();
        check(!self.is_refused_reservation(&space, bytes), call, ErrorKind::OutOfMemory)?;
        let (at, region) = space.take(bytes, alignment, wish).map_err(no_memory)?;
        let reservation =
            Reservation { bytes, owner: self.index, region, stale: BTreeMap::new(), withheld: Vec::new() };
        space.reservations.insert(at, reservation);
        device_ptr(call, at)
    }

    unsafe fn release(&self, start: DevicePtr, bytes: u64) -> Result<()> {
        let call = self.enter_mapping(Call::Release)?;
        let mut space = self.machine().write_space();
        check(space.is_reservation(start.address(), bytes, self.index), call, ErrorKind::InvalidValue)?;
        if space.overlaps(start.address(), bytes) {
            return check(self.lies(Defect::ReleaseWithMappings), call, ErrorKind::InvalidValue);
        }
        space.release(start.address(), self.granularity().recommended);
        Ok(())
    }

    fn create_backing(&self, bytes: u64, sharing: Sharing, rdma: bool) -> Result<Backing> {
        let call = self.enter_mapping(Call::CreateBacking)?;
        self.check_size(call, bytes)?;
        self.check_granularity(call, bytes)?;
        self.check_sharing(call, sharing)?;
        let phantom = self.machine().config.phantom;
        let charge = self.unit().physical.take(bytes).ok_or_else(|| self.no_memory(call, ErrorKind::OutOfMemory))?;
        let made = (!phantom).then(|| Memory::create(BACKING, bytes)).transpose();
        let memory = made.map_err(|errno| self.no_memory(call, kind_of(errno)))?;
        let mut backing = BackingMemory::new(bytes, sharing, memory, Some(charge));
        backing.rdma = rdma;
        Ok(self.enter_backing(backing))
    }

    unsafe fn destroy_backing(&self, backing: Backing) -> Result<()> {
        let call = self.enter_mapping(Call::DestroyBacking)?;
        let found = self.find_backing(call, &backing)?;
        self.unit().backings.lock().remove(&backing.raw());
        if self.lies(Defect::DestroyedBackingLosesMapping) {
            self.detach(&found);
        }
        Ok(())
    }

    unsafe fn map(&self, at: DevicePtr, backing: &Backing) -> Result<()> {
        let call = self.enter_mapping(Call::Map)?;
        let found = self.find_backing(call, backing)?;
        let (at, bytes) = (at.address(), found.bytes);
        self.check_granularity(call, at)?;
        self.wait_if_mapping_waits()?;
        check(!self.is_kept_from_mapping(&found), call, ErrorKind::Other)?;
        let mut space = self.machine().write_space();
        let taken = space.overlaps(at, bytes);
        let reservation = space.reservation(at, bytes, self.index);
        let reservation = reservation.filter(|_| !taken).ok_or(error(call, ErrorKind::InvalidValue))?;
        let again = |space: &Space| space.ranges().any(|(_, range)| is_mapping_of(range, &found));
        // Handles are consecutive numbers; a multiplication scatters those that are refused.
        let draw = backing.raw().wrapping_mul(0x9E37_79B9) >> 8;
        let refuses = draw.checked_rem(self.machine().config.habits.refuses_aliases) == Some(0);
        check(!refuses || !again(&space), call, ErrorKind::Unsupported)?;
        let writes = if self.lies(Defect::MapIsCopy) && again(&space) { Writes::Private } else { Writes::Shared };
        let stale = reservation.stale.get(&at) == Some(&bytes);
        if let (Some(region), Some(memory), false) = (&reservation.region, found.memory.as_ref(), stale) {
            region.place(at, bytes, memory, writes).map_err(|error| self.no_memory(call, kind_of(error)))?;
        }
        let kind = Kind::Mapping(Mapping { backing: found, readers: 0, writers: 0 });
        space.ranges.insert(at, Range { bytes, owner: self.index, kind });
        Ok(())
    }

    unsafe fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        let call = self.enter_mapping(Call::Unmap)?;
        let at = at.address();
        self.wait_if_mapping_waits()?;
        self.keep_from_mapping(at);
        let mut space = self.machine().write_space();
        let is_one = self.whole_mappings(&space, at, bytes).is_some_and(|found| found.len() == 1);
        check(is_one, call, ErrorKind::InvalidValue)?;
        if self.lies(Defect::UnmapDoesNothing) {
            return Ok(());
        }
        self.clear(&mut space, at, bytes).map_err(|errno| error(call, kind_of(errno)))?;
        let unmapped = space.remove(at, self.index, |_| true);
        if self.machine().config.habits.withholds
            && let Some(Kind::Mapping(mapping)) = unmapped.as_ref().map(|range| &range.kind)
            && let Some(reservation) = space.reservation_mut(at, self.index)
        {
            reservation.withheld.push(Arc::clone(&mapping.backing));
        }
        let neighbour = self.take_neighbour(&mut space, at + bytes);
        // The end of this mapping may free the memory, which must not happen under the lock.
        drop(space);
        self.free_early(unmapped.as_ref());
        drop((unmapped, neighbour));
        Ok(())
    }

    unsafe fn set_access(&self, at: DevicePtr, bytes: u64, access: &[Access]) -> Result<()> {
        let call = self.enter_mapping(Call::SetAccess)?;
        let rights = self.rights(access)?;
        let mut space = self.machine().write_space();
        let starts = self.whole_mappings(&space, at.address(), bytes);
        let starts = starts.filter(|found| !found.is_empty() && !rights.is_empty());
        let mut starts = starts.ok_or(error(call, ErrorKind::InvalidValue))?;
        let accepted = self.mixes_sizes().is_ok() || space.has_one_size(at.address());
        check(accepted, call, ErrorKind::InvalidValue)?;
        if self.lies(Defect::AccessStopsAtFirstMapping) {
            starts.truncate(1);
        }
        self.disown_neighbour(&mut space, at.address() + bytes);
        for start in starts {
            if let Some(range) = space.ranges.get_mut(&start)
                && let Kind::Mapping(mapping) = &mut range.kind
            {
                for (device, reads, writes) in &rights {
                    set_bit(&mut mapping.readers, *device, *reads);
                    set_bit(&mut mapping.writers, *device, *writes);
                }
            }
        }
        Ok(())
    }

    unsafe fn export_backing(&self, backing: &Backing) -> Result<OwnedFd> {
        let call = self.enter(Call::ExportBacking)?;
        self.descriptor_of(call, backing)
    }

    fn import_backing(&self, fd: BorrowedFd<'_>, bytes: u64) -> Result<Backing> {
        let call = self.enter(Call::ImportBacking)?;
        self.check_size(call, bytes)?;
        self.of_descriptor(call, fd, bytes)
    }

    unsafe fn export_fabric(&self, backing: &Backing) -> Result<FabricHandle> {
        let call = self.enter(Call::ExportFabric)?;
        self.name_of(call, backing)
    }

    fn import_fabric(&self, handle: &FabricHandle, bytes: u64) -> Result<Backing> {
        let call = self.enter(Call::ImportFabric)?;
        self.check_size(call, bytes)?;
        self.of_name(call, handle, bytes)
    }
}

/// Fails if the configuration has switched something off.
fn unless(is_off: bool, by: &'static str) -> Result<(), Reason> {
    if is_off { Err(Reason::SwitchedOff(by)) } else { Ok(()) }
}

pub(crate) fn is_mapping_of(range: &Range, backing: &Arc<BackingMemory>) -> bool {
    matches!(&range.kind, Kind::Mapping(mapping) if Arc::ptr_eq(&mapping.backing, backing))
}
