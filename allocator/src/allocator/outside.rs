//! Memory that a program takes from the driver past the cache, counted with the limit.
//!
//! A library in front of the driver sees the calls that the cache does not serve, such as physical memory for mappings of
//! the program's own. It makes them by [`Allocator::take_outside`], and notes by [`Allocator::give_outside`] what the
//! program gave back. So the limit holds for both together, and reports have both.
//!
//! A call that finds no memory is made again after each step that can have helped, as a request of the cache would be:
//!
//! 1. idle memory of this allocator is released, as much as the call lacks, and then all of it;
//! 2. [neighbours](crate::reclaim) are asked for idle memory, if the device is short;
//! 3. evictable pools are evicted;
//! 4. neighbours are asked for all that they can release, and waited for if the configuration says so.

#![forbid(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device, ErrorKind};

use super::Allocator;
use crate::in_flight::Ended;
use crate::pool::PoolId;
use crate::reclaim::Reclaim;
use crate::retry::release_whole;
use crate::stats::{OutsideKind, OutsideStats};

impl<D: Device> Allocator<D> {
    /// Takes memory past the cache by `take`, a call of the driver, and counts it.
    ///
    /// Memory of the device counts for the limit. Beyond the limit the call is not made, and the error has no status. If
    /// the limit or the driver refuses, memory is released as for a request, and `take` is called again. It changes
    /// nothing if it fails. The caller holds no lock that a thread needs which frees memory.
    pub fn take_outside(
        &self,
        kind: OutsideKind,
        bytes: u64,
        mut take: impl FnMut() -> hal::Result<()>,
    ) -> hal::Result<()> {
        self.inner.join_neighbours();
        let mut room = Room::new(self, bytes);
        loop {
            let tried = self.shared().in_flight.begin_attempt();
            match self.try_outside(kind, bytes, &mut take) {
                Err(error) if error.kind() == ErrorKind::OutOfMemory && kind == OutsideKind::Device => {
                    if !room.make(tried) {
                        self.shared().totals.ooms.fetch_add(1, Relaxed);
                        return Err(error);
                    }
                }
                taken => return taken,
            }
        }
    }

    /// Notes that memory of [`take_outside`](Self::take_outside) was given back to the driver.
    pub fn give_outside(&self, kind: OutsideKind, bytes: u64) {
        let shared = self.shared();
        // A request that found no memory tries again.
        let release = shared.in_flight.release();
        let counted = shared.outside.lower(kind, bytes);
        if kind == OutsideKind::Device {
            shared.totals.reserved.fetch_sub(counted, Relaxed);
        } else {
            release.cancel();
        }
    }

    /// What was taken past the cache. Only [`take_outside`](Self::take_outside) counts.
    #[must_use]
    pub fn outside(&self) -> OutsideStats {
        self.shared().outside.stats()
    }

    fn try_outside(
        &self,
        kind: OutsideKind,
        bytes: u64,
        take: &mut impl FnMut() -> hal::Result<()>,
    ) -> hal::Result<()> {
        let shared = self.shared();
        if kind == OutsideKind::Device {
            let refused = hal::Error::new(ErrorKind::OutOfMemory, "take_outside");
            let reservation = shared.reserve(bytes).ok_or(refused)?;
            take()?;
            reservation.keep(bytes);
        } else {
            take()?;
        }
        shared.outside.raise(kind, bytes);
        Ok(())
    }
}

/// The steps by which a call gets room.
struct Room<'a, D: Device> {
    allocator: &'a Allocator<D>,
    bytes: u64,
    others: Reclaim<'a, D>,
    /// Whether as much idle memory was released as the call lacked, and then all.
    has_released: bool,
    has_emptied: bool,
}

impl<'a, D: Device> Room<'a, D> {
    fn new(allocator: &'a Allocator<D>, bytes: u64) -> Self {
        let others = Reclaim::new(&allocator.inner, bytes, None);
        Self { allocator, bytes, others, has_released: false, has_emptied: false }
    }

    /// Makes room by the next step that can. Returns whether to try again.
    fn make(&mut self, tried: Ended) -> bool {
        let (inner, shared) = (&self.allocator.inner, self.allocator.shared());
        // No step helps a call for more than there can ever be.
        let most = shared.settings.limit.load(Relaxed).min(shared.device.info().total_memory);
        if shared.settings.never_block.load(Relaxed) || self.bytes > most {
            return false;
        }
        // Another thread may capture. The call of the program itself is made in the program's own mode.
        let _relaxed = shared.relax_capture();
        // Without a shortage, the driver lacks memory in one piece.
        let shortage = || inner.shortage(self.bytes).max(1);
        if !self.has_released {
            self.has_released = true;
            if inner.release_for_others(shortage()) > 0 {
                return true;
            }
        }
        if !self.has_emptied {
            self.has_emptied = true;
            if self.empty() {
                return true;
            }
        }
        if shared.in_flight.may_change(tried) {
            shared.callbacks.waiting(|| shared.in_flight.wait(tried));
            return true;
        }
        if inner.obtain(&self.others, PoolId::DEFAULT, true, shortage) {
            return true;
        }
        let has_waited = self.others.wait();
        // Memory of this process may have become idle meanwhile.
        (self.has_released, self.has_emptied) = (!has_waited, !has_waited);
        has_waited
    }

    /// Releases all idle memory, after a wait for its uses. Returns whether there was any.
    fn empty(&self) -> bool {
        let held = || self.allocator.shared().totals.reserved.load(Relaxed);
        let before = held();
        let givers = self.allocator.inner.givers();
        // The heaps themselves report a failure to their users.
        self.allocator.shared().callbacks.waiting(|| {
            for fence in givers.iter().flat_map(|heap| heap.all_fences()) {
                let _ = fence.wait();
            }
        });
        let emptied = self.allocator.empty_cache();
        for heap in givers {
            let _ = release_whole(&heap);
        }
        held() < before || emptied.is_ok_and(|bytes| bytes > 0)
    }
}
