//! Unmapping addresses that an elastic heap no longer uses, and returning chunks and address ranges to the driver.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::{mem, slice};

use cachette_hal::{self as hal, Device, DevicePtr, ErrorKind, VirtualMemory};

use crate::blocks::{Chunk, SegmentId};
use crate::elastic;
use crate::elastic::map::{self, Leftover, PendingUnmap};
use crate::fence::Fence;
use crate::heap::Heap;
use crate::size::SegmentKind;
use crate::stats::Counted;

impl<D: Device> Heap<D> {
    pub(crate) fn add_pending_unmap(&self, pending: PendingUnmap<D>) {
        if let Some(elastic) = self.elastic() {
            elastic.pending_unmaps.lock().push(pending);
        }
    }

    /// Unmaps addresses whose last use has ended, and their last chunks. Returns the freed bytes. It retries failures.
    pub(crate) fn unmap_pending(&self) -> u64 {
        if self.elastic().is_none_or(|elastic| elastic.pending_unmaps.lock().is_empty()) {
            return 0;
        }
        let moving = self.begin_move(&self.state.lock());
        moving.map_or(0, |_moving| self.try_to_unmap_pending().0)
    }

    /// Does the same as [`unmap_pending`](Self::unmap_pending), and also returns the first failure of the driver. The
    /// calling thread has begun a move, or it puts the pool to sleep.
    pub(crate) fn try_to_unmap_pending(&self) -> (u64, hal::Result<()>) {
        let Some(elastic) = self.elastic().filter(|elastic| !elastic.pending_unmaps.lock().is_empty()) else {
            return (0, Ok(()));
        };
        let memory = match self.shared.device.virtual_memory() {
            Ok(memory) => memory,
            Err(missing) => return (0, Err(missing.into())),
        };
        let release = self.shared.in_flight.release();
        let all = mem::take(&mut *elastic.pending_unmaps.lock());
        let _relaxed = self.shared.relax_capture();
        let (mut holes, mut keep, mut freed, mut result) = (Vec::new(), Vec::new(), [0; 2], Ok(()));
        for mut pending in all {
            match self.clear(&mut pending, memory, &mut freed) {
                Ok(true) => holes.push(pending.block),
                unready => {
                    result = result.and(unready.map(|_| ()));
                    keep.push(pending);
                }
            }
        }
        elastic.pending_unmaps.lock().extend(keep);
        let mut state = self.state.lock();
        for block in holes {
            state.blocks.become_unmapped(block);
        }
        for kind in [SegmentKind::Small, SegmentKind::Large] {
            self.counters.lower(Counted::ReservedBytes, kind, freed[kind as usize]);
        }
        drop(state);
        self.release_closed_addresses();
        let freed = freed.iter().sum();
        self.shared.totals.reserved.fetch_sub(freed, Relaxed);
        if freed == 0 {
            release.cancel();
        }
        (freed, result)
    }

    /// Clears a pending unmap, and adds the freed bytes to those of their kind. Returns `false` if it is in use.
    fn clear(
        &self,
        pending: &mut PendingUnmap<D>,
        memory: &dyn VirtualMemory,
        freed: &mut [u64; 2],
    ) -> hal::Result<bool> {
        for fence in &pending.fences {
            if !fence.poll()?.is_done() {
                return Ok(false);
            }
        }
        let mut result = Ok(true);
        pending.left.retain_mut(|left| {
            // SAFETY: 1. the fences after the last use have passed, and no request gets a pending unmap.
            let cleared = unsafe { map::clear(&self.shared, memory, left) };
            if let Ok(bytes) = cleared {
                freed[left.chunk.kind as usize] += bytes;
                self.shared.totals.device_frees.fetch_add(u64::from(bytes > 0), Relaxed);
            }
            result = result.and(cleared.map(|_| true));
            cleared.is_err()
        });
        result
    }

    /// Returns the idle chunks that are `wanted` to the device once the heap's stream has passed their last use. Returns
    /// the bytes that became free at once. Later calls of [`unmap_pending`](Self::unmap_pending) free the rest.
    pub(crate) fn release_idle_chunks(&self, wanted: impl FnMut(&Chunk) -> bool) -> hal::Result<u64> {
        if self.is_asleep() || self.stream_state.ask_capturing()? {
            return Ok(0);
        }
        // A capture of another stream may be active.
        let _relaxed = self.shared.relax_capture();
        // This comes before the chunks leave the lists. A request that finds none of them waits until they are pending.
        let release = self.shared.in_flight.release();
        let held = self.hold_chunks(wanted);
        if held.chunks.is_empty() {
            drop(held);
            release.cancel();
            return Ok(self.unmap_pending());
        }
        let Some(fence) = Fence::try_record(&self.stream_state)?.map(Arc::new) else { return Ok(0) };
        let released = |chunk| Leftover { chunk, last: true, mapped: true };
        let (_, chunks) = held.abandon(slice::from_ref(&fence), |_| false, released);
        drop(release);
        // A panic of a tracker continues after the chunks are released.
        let _told = self.tell_unmapped(&chunks);
        fence.passes_soon()?;
        Ok(self.unmap_pending())
    }

    /// Bytes of the chunks of one kind that are being returned to the device.
    pub(crate) fn leaving_bytes(&self, kind: SegmentKind) -> u64 {
        let Some(elastic) = self.elastic() else { return 0 };
        let pending_unmaps = elastic.pending_unmaps.lock();
        let left = pending_unmaps.iter().flat_map(|pending| &pending.left);
        left.filter(|left| left.last && left.chunk.kind == kind).map(|left| left.chunk.bytes).sum()
    }

    pub(crate) fn release_all_chunks(&self) {
        // The pool may be asleep, completely or in part. Chunks that have memory are released as in an awake pool.
        self.forget_idle_chunks();
        self.state.lock().asleep = false;
        let _ = self.release_idle_chunks(|_| true);
        let _ = self.wait_and_unmap();
    }

    /// Waits for all work that pending unmaps wait for, and unmaps. A failure does not stop the others.
    pub(crate) fn wait_and_unmap(&self) -> hal::Result<()> {
        let waited = self.unmap_fences().iter().map(|fence| fence.wait()).fold(Ok(()), Result::and);
        self.unmap_pending();
        waited
    }

    /// Returns every fence that must pass before all pending unmaps can be done.
    pub(crate) fn unmap_fences(&self) -> Vec<Arc<Fence<D>>> {
        let Some(elastic) = self.elastic() else { return Vec::new() };
        let pending_unmaps = elastic.pending_unmaps.lock();
        pending_unmaps.iter().flat_map(|pending| pending.fences.clone()).collect()
    }

    /// Reserves another address range for at least `bytes`. Returns `false` if no addresses are left, or if the device
    /// has too little memory to fill the range. Drivers refuse such a range with different errors.
    pub(crate) fn reserve_addresses(&self, bytes: u64) -> hal::Result<bool> {
        if bytes > self.shared.device.info().total_memory {
            return Ok(false);
        }
        let memory = self.shared.device.virtual_memory()?;
        let (least, mut wish) = self.shared.range_sizes(memory, bytes);
        let start = loop {
            match self.shared.chunks.reserve_outside_excluded(memory, wish) {
                Ok(start) => break start,
                Err(error) if error.kind() != ErrorKind::OutOfMemory => return Err(error),
                Err(_) if wish == least => return Ok(false),
                Err(_) => wish = least.max((wish / 2).next_multiple_of(elastic::page(memory))),
            }
        };
        Ok(self.add_range(memory, start, wish)?.is_some())
    }

    /// Adds a range that was just reserved. Returns `None` if the tables are full; then the range is released.
    pub(crate) fn add_range(
        &self,
        memory: &dyn VirtualMemory,
        start: DevicePtr,
        bytes: u64,
    ) -> hal::Result<Option<SegmentId>> {
        let order = self.shared.totals.segments.fetch_add(1, Relaxed);
        let id = self.state.lock().blocks.add_addresses(start.address(), bytes, order);
        if id.is_some() {
            self.note_range(start, bytes);
        } else {
            // SAFETY: 1. the range was just reserved, and no other code has its address.
            unsafe { memory.release(start, bytes) }?;
        }
        Ok(id)
    }

    /// Releases a range that was just reserved and is not used. If the driver refuses, it is tried again with the next
    /// addresses that end.
    pub(crate) fn give_back(&self, start: DevicePtr, bytes: u64) {
        // The end of the addresses lowers it again.
        self.shared.chunks.ranges.fetch_add(1, Relaxed);
        if let Some(elastic) = self.elastic() {
            elastic.unused_ranges.lock().push((start, bytes));
        }
        self.release_closed_addresses();
    }

    pub(crate) fn note_range(&self, start: DevicePtr, bytes: u64) {
        if let Some(elastic) = self.elastic() {
            elastic.ranges.lock().push((start, bytes));
        }
    }

    /// Releases the closed address ranges without memory. Otherwise every failed map would cost addresses for good, and on
    /// some devices memory. The next call retries every failure.
    pub(crate) fn release_closed_addresses(&self) {
        let closed: HashSet<_> = self.state.lock().blocks.remove_closed().into_iter().collect();
        let (elastic, Ok(memory)) = (&self.elastic_state, self.shared.device.virtual_memory()) else { return };
        let is_closed = |(start, bytes): &mut (DevicePtr, u64)| closed.contains(&(start.address(), *bytes));
        let mut unused = mem::take(&mut *elastic.unused_ranges.lock());
        unused.extend(elastic.ranges.lock().extract_if(.., is_closed));
        for (start, bytes) in unused {
            // SAFETY: 1. this heap reserved the range, and no block of the heap lies in it any more.
            if unsafe { memory.release(start, bytes) }.is_ok() {
                self.shared.chunks.ranges.fetch_sub(1, Relaxed);
            } else {
                elastic.unused_ranges.lock().push((start, bytes));
            }
        }
    }

    /// Releases the address ranges, unless the driver refused to unmap something in them.
    pub(crate) fn release_addresses(&self) {
        self.release_closed_addresses();
        let Some(elastic) = self.elastic() else { return };
        // The chunks of a sleeping heap are not mapped.
        let is_mapped = !self.is_asleep() && !self.chunks().is_empty();
        if is_mapped || !elastic.pending_unmaps.lock().is_empty() {
            return;
        }
        let Ok(memory) = self.shared.device.virtual_memory() else { return };
        for (start, bytes) in mem::take(&mut *elastic.ranges.lock()) {
            // SAFETY: 1. this heap reserved the range, and nothing is mapped there. A destructor reports no failure.
            let _ = unsafe { memory.release(start, bytes) };
        }
    }
}
