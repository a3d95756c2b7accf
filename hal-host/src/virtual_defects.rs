//! The planted defects of virtual memory.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use cachette_hal::{Call, Result};

use crate::backing::BackingMemory;
use crate::defect::Defect;
use crate::device::HostDevice;
use crate::space::{Kind, Range, Space};
use crate::virtual_memory::is_mapping_of;

/// The number of reservations, if the defect limits them.
const FEW: usize = 64;
/// How long an unmap prevents a map of its backing, if the defect is planted.
const WHILE: Duration = Duration::from_micros(200);

impl HostDevice {
    /// Begins a call of virtual memory, none of which waits, and returns it.
    pub(crate) fn enter_mapping(&self, call: Call) -> Result<Call> {
        self.enter(call)?;
        if self.lies(Defect::VirtualMemoryWaits) {
            self.machine().wait_idle(call, self.index)?;
        }
        Ok(call)
    }

    /// Returns whether a reservation exceeds the limit on their number or size.
    pub(crate) fn is_refused_reservation(&self, space: &Space, bytes: u64) -> bool {
        let many = || space.reservations_of(self.index) >= FEW;
        let large = bytes > self.unit().physical.capacity;
        (self.lies(Defect::ReservationsRunOut) && many()) || (large && self.lies(Defect::ReservationBoundByMemory))
    }

    /// Replaces a backing by zeroed memory in all of its mappings.
    pub(crate) fn detach(&self, backing: &Arc<BackingMemory>) {
        let space = self.machine().read_space();
        for (at, _) in space.ranges().filter(|(_, range)| is_mapping_of(range, backing)) {
            let reservation = space.reservation(at, backing.bytes, self.index);
            if let Some(region) = reservation.and_then(|found| found.region.as_ref()) {
                let _ = region.renew(at, backing.bytes);
            }
        }
    }

    /// Prevents another map of the backing at `at` for a while, if the defect is planted.
    pub(crate) fn keep_from_mapping(&self, at: u64) {
        if !self.lies(Defect::MapFailsBesideUnmap) {
            return;
        }
        let backing = match self.machine().read_space().ranges.get(&at).map(|range| &range.kind) {
            Some(Kind::Mapping(mapping)) => Arc::clone(&mapping.backing),
            _ => return,
        };
        // Relaxed: the count is independent of other data.
        backing.unmapping.fetch_add(1, Relaxed);
        thread::sleep(WHILE);
        backing.unmapping.fetch_sub(1, Relaxed);
    }

    /// Returns whether a backing cannot be mapped because it is being unmapped elsewhere.
    pub(crate) fn is_kept_from_mapping(&self, backing: &BackingMemory) -> bool {
        // Relaxed: the count is independent of other data.
        self.lies(Defect::MapFailsBesideUnmap) && backing.unmapping.load(Relaxed) > 0
    }

    /// Removes the pages of a mapping, or only reports that.
    pub(crate) fn clear(&self, space: &mut Space, at: u64, bytes: u64) -> Result<(), Errno> {
        let keeps = self.lies(Defect::RemapShowsOldContent);
        let Some(reservation) = space.reservation_mut(at, self.index) else { return Ok(()) };
        if keeps {
            reservation.stale.insert(at, bytes);
            return Ok(());
        }
        match &reservation.region {
            Some(region) => region.clear(at, bytes),
            None => Ok(()),
        }
    }

    /// Removes the mapping at `at` from the table, if the defect extends an unmap to it.
    pub(crate) fn take_neighbour(&self, space: &mut Space, at: u64) -> Option<Range> {
        let mapping = |range: &Range| matches!(range.kind, Kind::Mapping(_));
        if self.lies(Defect::UnmapTakesNeighbour) {
            return space.remove(at, self.index, mapping);
        }
        None
    }

    /// Removes all rights to the mapping at `at`, if the defect extends a change of rights to it.
    pub(crate) fn disown_neighbour(&self, space: &mut Space, at: u64) {
        if self.lies(Defect::AccessTakesFromNeighbour)
            && let Some(range) = space.ranges.get_mut(&at)
            && let Kind::Mapping(mapping) = &mut range.kind
        {
            (mapping.readers, mapping.writers) = (0, 0);
        }
    }

    /// Counts unmapped memory as free although another mapping uses it, if its handle is destroyed.
    pub(crate) fn free_early(&self, unmapped: Option<&Range>) {
        if self.lies(Defect::AliasedMemoryFreedEarly)
            && let Some(Kind::Mapping(mapping)) = unmapped.map(|range| &range.kind)
        {
            let live = self.unit().backings.lock();
            let is_live = |backing: &Arc<_>| Arc::ptr_eq(backing, &mapping.backing);
            if !live.values().any(is_live) {
                mapping.backing.forfeit();
            }
        }
    }
}
