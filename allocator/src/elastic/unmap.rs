//! Unmapping addresses that an elastic heap no longer uses, and returning chunks to the device.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::owned::RelaxedCapture;
use cachette_hal::{self as hal, Device, VirtualMemory};

use crate::elastic::elastic_state::PendingUnmap;
use crate::elastic::map::{self, Leftover};
use crate::fence::Fence;
use crate::heap::Heap;
use crate::size::SegmentKind;
use crate::stats::Counted;

impl<D: Device> Heap<D> {
    pub(crate) fn add_pending_unmap(&self, pending: PendingUnmap<D>) {
        if let Some(elastic) = &self.elastic {
            elastic.pending_unmaps.lock().push(pending);
        }
    }

    /// Unmaps the addresses whose last use has ended, and destroys the chunks whose last mapping this was. Returns the
    /// bytes that became free. The next call retries every failure.
    pub(crate) fn unmap_pending(&self) -> u64 {
        if self.elastic.as_ref().is_none_or(|elastic| elastic.pending_unmaps.lock().is_empty()) {
            return 0;
        }
        let moving = self.begin_move(&self.state.lock());
        moving.map_or(0, |_moving| self.try_to_unmap_pending().0)
    }

    /// Does the same as [`unmap_pending`](Self::unmap_pending), and also returns the first failure of the driver. The
    /// calling thread has begun a move, or it puts the pool to sleep.
    pub(crate) fn try_to_unmap_pending(&self) -> (u64, hal::Result<()>) {
        let Some(elastic) = self.elastic.as_ref().filter(|elastic| !elastic.pending_unmaps.lock().is_empty()) else {
            return (0, Ok(()));
        };
        let memory = match self.shared.device.virtual_memory() {
            Ok(memory) => memory,
            Err(missing) => return (0, Err(missing.into())),
        };
        let release = self.shared.in_flight.release();
        let all = std::mem::take(&mut *elastic.pending_unmaps.lock());
        let _relaxed = RelaxedCapture::enter(&self.shared.device).ok();
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

    /// Clears a pending unmap, and adds the bytes that became free to those of their kind. Returns `false` if its
    /// addresses are still in use.
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
            // SAFETY: 1. the fences after the last use of the addresses have passed, and no request gets a block that
            // is a pending unmap.
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

    /// Returns every idle chunk to the device once the heap's stream has passed its last use. Returns the bytes that
    /// became free at once. Later calls of [`unmap_pending`](Self::unmap_pending) free the rest.
    pub(crate) fn release_idle_chunks(&self) -> hal::Result<u64> {
        if self.is_asleep() || self.stream_state.ask_capturing()? {
            return Ok(0);
        }
        // A capture of another stream may be active.
        let _relaxed = RelaxedCapture::enter(&self.shared.device).ok();
        // This comes before the chunks leave the lists. A request that finds none of them waits until they are pending.
        let release = self.shared.in_flight.release();
        let held = self.hold_chunks(|_| true);
        if held.chunks.is_empty() {
            drop(held);
            release.cancel();
            return Ok(self.unmap_pending());
        }
        let Some(fence) = Fence::try_record(&self.stream_state)?.map(Arc::new) else { return Ok(0) };
        let released = |chunk| Leftover { chunk, last: true, mapped: true };
        let (_, chunks) = held.abandon_untold(slice::from_ref(&fence), |_| false, released);
        drop(release);
        // A panic of a tracker continues after the chunks are released.
        let _told = self.tell_unmapped(&chunks);
        fence.passes_soon()?;
        Ok(self.unmap_pending())
    }

    /// Bytes of the chunks of one kind that are being returned to the device.
    pub(crate) fn leaving_bytes(&self, kind: SegmentKind) -> u64 {
        let Some(elastic) = &self.elastic else { return 0 };
        let pending_unmaps = elastic.pending_unmaps.lock();
        let left = pending_unmaps.iter().flat_map(|pending| &pending.left);
        left.filter(|left| left.last && left.chunk.kind == kind).map(|left| left.chunk.bytes).sum()
    }

    /// Returns everything to the device, after a wait for all work that may still use it.
    pub(crate) fn release_all_chunks(&self) {
        // The pool may be asleep, completely or in part. Chunks that have memory are released as in an awake pool.
        self.forget_idle_chunks();
        self.set_asleep(false);
        let _ = self.release_idle_chunks();
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
        let Some(elastic) = &self.elastic else { return Vec::new() };
        let pending_unmaps = elastic.pending_unmaps.lock();
        pending_unmaps.iter().flat_map(|pending| pending.fences.clone()).collect()
    }
}
