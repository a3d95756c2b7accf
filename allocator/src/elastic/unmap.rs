//! Unmapping addresses that an elastic heap no longer uses, and returning chunks to the device.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::owned::RelaxedCapture;
use cachette_hal::{self as hal, Device, DevicePtr};

use crate::blocks::{BlockId, Chunk, ChunkId};
use crate::elastic::chunk_table::memory_of;
use crate::elastic::map::{self, Leftover};
use crate::elastic::moves::{Move, Moved};
use crate::elastic::state::PendingUnmap;
use crate::fence::Fence;
use crate::heap::{Heap, HeapState};
use crate::observe::callbacks::{CallbackOutcome, TraceAction};
use crate::size::SegmentKind;
use crate::stats::Counted;

impl<D: Device> Heap<D> {
    pub(crate) fn note_range(&self, start: DevicePtr, bytes: u64) {
        if let Some(elastic) = &self.elastic {
            elastic.ranges.lock().push((start, bytes));
        }
    }

    /// Bytes of reserved addresses.
    pub(crate) fn address_bytes(&self) -> u64 {
        let ranges = self.elastic.iter().map(|elastic| elastic.ranges.lock());
        ranges.map(|ranges| ranges.iter().map(|(_, bytes)| bytes).sum::<u64>()).sum()
    }

    /// Adds addresses to unmap after `fences` have passed.
    pub(crate) fn add_pending_unmap(&self, block: BlockId, left: Vec<Leftover>, fences: Vec<Arc<Fence<D>>>) {
        if let Some(elastic) = &self.elastic {
            elastic.pending_unmaps.lock().push(PendingUnmap { block, left, fences });
        }
    }

    /// Releases chunks that have moved within this heap, or to another heap if they are `lost`. Their old addresses are
    /// unmapped after `fences` and the guards of the blocks have passed.
    pub(crate) fn let_go_of(&self, moved: Moved, fences: &[Arc<Fence<D>>], lost: bool) -> CallbackOutcome {
        if lost {
            let _state = self.state.lock();
            for (chunk, _) in &moved.chunks {
                self.counters.lower(Counted::ReservedBytes, chunk.kind, chunk.bytes);
            }
        }
        self.abandon(moved, fences, |_| None)
    }

    /// Schedules the return of chunks to the device after `fence` and the guards of the blocks have passed.
    fn let_leave(&self, moved: Moved, fence: &Arc<Fence<D>>) -> CallbackOutcome {
        self.abandon(moved, std::slice::from_ref(fence), |chunk| Some(chunk.id))
    }

    /// Marks the addresses of chunks as pending unmaps. `last` tells which chunks are destroyed with their mapping.
    fn abandon(
        &self,
        moved: Moved,
        fences: &[Arc<Fence<D>>],
        last: impl Fn(&Chunk) -> Option<ChunkId>,
    ) -> CallbackOutcome {
        let Moved { chunks, begun } = moved;
        let mut outcome = CallbackOutcome::default();
        let mut left_behind = Vec::with_capacity(chunks.len());
        let mut state = self.state.lock();
        for (chunk, held) in chunks {
            let mut before = state.blocks.guards_of(held);
            before.extend_from_slice(fences);
            self.shared.index.set(chunk.at, chunk.bytes, None);
            state.blocks.remove_chunk(chunk.at);
            state.blocks.abandon(held);
            state.note_loss(TraceAction::SegmentUnmap, chunk.at, chunk.bytes);
            left_behind.push((chunk, held.block, before));
        }
        self.flush_stats(&mut state.blocks);
        drop(state);
        for (chunk, block, fences) in left_behind {
            outcome = outcome.and(self.tell(TraceAction::SegmentUnmap, chunk.at, chunk.bytes));
            let left =
                Leftover { at: chunk.at, bytes: chunk.bytes, chunk: last(&chunk), kind: chunk.kind, mapped: true };
            self.add_pending_unmap(block, vec![left], fences);
        }
        // The list of pending unmaps contains them now.
        drop(begun);
        outcome
    }

    /// Unmaps the addresses whose last use has ended, and destroys the chunks whose last mapping this was. Returns the
    /// bytes that became free. The next call retries every failure.
    pub(crate) fn unmap_pending(&self) -> u64 {
        let Some(elastic) = &self.elastic else { return 0 };
        if elastic.pending_unmaps.lock().is_empty() {
            return 0;
        }
        let begun = self.begin_move(&self.state.lock());
        let freed = begun.map(|_move| self.try_to_unmap_pending().0);
        freed.unwrap_or(0)
    }

    /// Begins to move or unmap chunks. Returns `None` if the pool sleeps, since the sleep code then handles all chunks.
    pub(crate) fn begin_move(&self, state: &HeapState<D>) -> Option<Move> {
        let elastic = self.elastic.as_ref().filter(|_| !state.redirect.asleep)?;
        Some(elastic.moves.begin())
    }

    /// Waits until no other thread moves or unmaps chunks. The pool is falling asleep, so that no thread begins again.
    pub(crate) fn wait_for_moves(&self) {
        if let Some(elastic) = &self.elastic {
            elastic.moves.wait();
        }
    }

    /// Does the same as [`unmap_pending`](Self::unmap_pending), and also returns the first failure of the driver. The
    /// calling thread has begun a move, or it puts the pool to sleep.
    pub(crate) fn try_to_unmap_pending(&self) -> (u64, hal::Result<()>) {
        let Some(elastic) = &self.elastic else { return (0, Ok(())) };
        let memory = match memory_of(&self.shared.device) {
            Ok(memory) => memory,
            Err(error) => return (0, Err(error)),
        };
        if elastic.pending_unmaps.lock().is_empty() {
            return (0, Ok(()));
        }
        let release = self.shared.in_flight.release();
        let all = std::mem::take(&mut *elastic.pending_unmaps.lock());
        let _relaxed = RelaxedCapture::enter(&self.shared.device).ok();
        let (mut holes, mut keep, mut freed) = (Vec::new(), Vec::new(), [0; 2]);
        let mut result = Ok(());
        for mut pending_unmaps in all {
            match pending_unmaps.is_ready() {
                Ok(true) => {}
                unready => {
                    result = result.and(unready.map(|_| ()));
                    keep.push(pending_unmaps);
                    continue;
                }
            }
            pending_unmaps.left.retain_mut(|left| {
                // SAFETY: 1. the fences after the last use of the addresses have passed, and no request gets a block
                // that is a pending unmap.
                match unsafe { map::clear(&self.shared, memory, left) } {
                    Ok(bytes) => {
                        freed[left.kind as usize] += bytes;
                        self.shared.totals.device_frees.fetch_add(u64::from(bytes > 0), Relaxed);
                        false
                    }
                    Err(error) => {
                        result = result.and(Err(error));
                        true
                    }
                }
            });
            if pending_unmaps.left.is_empty() {
                holes.push(pending_unmaps.block);
            } else {
                keep.push(pending_unmaps);
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
        let freed = freed.iter().sum();
        self.shared.totals.reserved.fetch_sub(freed, Relaxed);
        if freed == 0 {
            release.cancel();
        }
        (freed, result)
    }

    /// Returns every idle chunk to the device once the heap's stream has passed its last use. Returns the bytes that
    /// became free at once. Later calls of [`unmap_pending`](Self::unmap_pending) free the rest.
    pub(crate) fn release_idle_chunks(&self) -> hal::Result<u64> {
        if self.is_asleep() || self.stream_state.ask_capturing()? {
            return Ok(0);
        }
        // A capture of another stream may be active.
        let _relaxed = RelaxedCapture::enter(&self.shared.device).ok();
        let idle_chunks: Vec<Chunk> = {
            let idle_chunks = self.state.lock().blocks.idle_chunks();
            idle_chunks.into_iter().map(|spare| spare.chunk).collect()
        };
        let moved = self.reserve_chunks(&idle_chunks);
        if !moved.chunks.is_empty() {
            let fence = match Fence::record(&self.stream_state) {
                Ok(fence) => Arc::new(fence),
                Err(error) => {
                    self.put_back_chunks(&moved);
                    return Err(error);
                }
            };
            // A panic of a tracker continues after the chunks are released.
            let _told = self.let_leave(moved, &fence);
            fence.passes_soon()?;
            return Ok(self.unmap_pending());
        }
        Ok(self.unmap_pending())
    }

    /// Bytes of the chunks of one kind that are being returned to the device.
    pub(crate) fn leaving_bytes(&self, kind: SegmentKind) -> u64 {
        let Some(elastic) = &self.elastic else { return 0 };
        let pending_unmaps = elastic.pending_unmaps.lock();
        let left = pending_unmaps.iter().flat_map(|pending_unmaps| &pending_unmaps.left);
        left.filter(|left| left.chunk.is_some() && left.kind == kind).map(|left| left.bytes).sum()
    }

    /// Returns everything to the device, after a wait for all work that may still use it.
    pub(crate) fn release_all_chunks(&self) {
        // The pool may be asleep, completely or in part. Chunks that have memory are released as in an awake pool.
        self.forget_idle_chunks();
        self.set_asleep(false);
        let _ = self.release_idle_chunks();
        for fence in self.unmap_fences() {
            let _ = fence.wait();
        }
        self.unmap_pending();
    }

    /// Returns every fence that must pass before all pending unmaps can be done.
    pub(crate) fn unmap_fences(&self) -> Vec<Arc<Fence<D>>> {
        let Some(elastic) = &self.elastic else { return Vec::new() };
        let pending_unmaps = elastic.pending_unmaps.lock();
        pending_unmaps.iter().flat_map(|pending_unmaps| pending_unmaps.fences.clone()).collect()
    }

    /// Releases the address ranges, unless the driver refused to unmap something in them.
    pub(crate) fn release_addresses(&self) {
        let Some(elastic) = &self.elastic else { return };
        // The chunks of a sleeping heap are not mapped.
        let is_mapped = !self.is_asleep() && !self.chunks().is_empty();
        if is_mapped || !elastic.pending_unmaps.lock().is_empty() {
            return;
        }
        let Ok(memory) = memory_of(&self.shared.device) else { return };
        for (start, bytes) in std::mem::take(&mut *elastic.ranges.lock()) {
            // SAFETY: 1. this heap reserved the range, nothing is mapped in it, and the heap is being dropped. A
            // destructor cannot report a failure.
            let _ = unsafe { memory.release(start, bytes) };
        }
    }
}
