//! Idle chunks that a thread holds in order to move or release them.
//!
//! Another heap, the donor, lists its idle chunks without holding them. The requesting thread holds them once its plan
//! needs them. If they are gone by then, or may be in use again, the thread plans again without this donor.

use std::sync::{Arc, RwLockReadGuard};
use std::{mem, ptr};

use cachette_hal::{self as hal, Device, Progress};

use crate::blocks::{Chunk, ChunkId, ReservedBlock};
use crate::elastic::map::{Leftover, PendingUnmap};
use crate::elastic::policy::Plan;
use crate::fence::{Fence, passed_soon};
use crate::heap::{Heap, HeapState};
use crate::observe::callbacks::{CallbackOutcome, TraceAction};
use crate::stats::{Counted, Row};

/// The heaps whose idle chunks can move to another heap.
pub(crate) struct ChunkDonors<D: Device> {
    pub(crate) heaps: Vec<Arc<Heap<D>>>,
    /// The number of heaps that have memory, exact up to [`MANY_HEAPS`](crate::elastic::policy::MANY_HEAPS).
    pub(crate) holders: usize,
}

/// The idle chunks of a heap, not yet held.
pub(crate) struct DonorOffer<'a, D: Device> {
    pub(crate) heap: &'a Heap<D>,
    pub(crate) chunks: Vec<Chunk>,
    /// The allocations of the heap so far. While the number stays the same, the chunks get no new work.
    allocations: u64,
}

/// Chunks of one heap that a thread holds, and their addresses. A drop puts them back.
pub(crate) struct HeldChunks<'a, D: Device> {
    pub(crate) heap: &'a Heap<D>,
    pub(crate) chunks: Vec<(Chunk, ReservedBlock)>,
    /// The lock that a pool waits for before it sleeps; `None` in a heap that grows, since the pool waits for that too.
    pub(crate) _moving: Option<RwLockReadGuard<'a, ()>>,
}

impl<D: Device> HeldChunks<'_, D> {
    /// Turns the addresses into pending unmaps, which end after `fences` and the guards of the blocks have passed.
    /// Returns these guards, and the chunks, for [`tell_unmapped`](Heap::tell_unmapped).
    ///
    /// The heap no longer counts the chunks that are `lost`. `left` says what remains of each.
    pub(crate) fn abandon(
        mut self,
        fences: &[Arc<Fence<D>>],
        lost: impl Fn(&Chunk) -> bool,
        left: impl Fn(Chunk) -> Leftover,
    ) -> (Vec<Arc<Fence<D>>>, Vec<Chunk>) {
        let (heap, chunks) = (self.heap, mem::take(&mut self.chunks));
        let mut all_guards = Vec::new();
        let mut state = heap.state.lock();
        for (chunk, held) in &chunks {
            let guards = state.blocks.abandon(*held);
            all_guards.extend_from_slice(&guards);
            heap.shared.index.set(chunk.at, chunk.bytes, None);
            state.blocks.remove_chunk(chunk.at);
            state.note_loss(TraceAction::SegmentUnmap, chunk.at, chunk.bytes);
            if lost(chunk) {
                heap.counters.lower(Counted::ReservedBytes, chunk.kind, chunk.bytes);
            }
            let left = vec![left(*chunk)];
            heap.add_pending_unmap(PendingUnmap { block: held.block, left, fences: [&guards, fences].concat() });
        }
        heap.flush_stats(&mut state.blocks);
        drop(state);
        // The end of `self` ends the move. A sink may wait for a thread that puts the pool to sleep.
        (all_guards, chunks.into_iter().map(|(chunk, _)| chunk).collect())
    }
}

impl<'a, D: Device> HeldChunks<'a, D> {
    /// Gives up the chunks that are mapped nowhere any more. Returns the heap if there are any: its next call of
    /// `unmap_pending` returns them to the device.
    pub(crate) fn give_up(&mut self, lost: &[Leftover]) -> Option<&'a Heap<D>> {
        let left_of = |chunk: &Chunk| lost.iter().find(|left| left.chunk == *chunk);
        let chunks: Vec<_> = self.chunks.extract_if(.., |(chunk, _)| left_of(chunk).is_some()).collect();
        if chunks.is_empty() {
            return None;
        }
        let given_up = HeldChunks { heap: self.heap, chunks, _moving: None };
        let released = |chunk| Leftover { chunk, last: true, mapped: left_of(&chunk).is_some_and(|left| left.mapped) };
        let (_, chunks) = given_up.abandon(&[], |_| false, released);
        // A panic of a tracker continues after the chunks are released.
        let _told = self.heap.tell_unmapped(&chunks);
        Some(self.heap)
    }

    /// Returns the place of a chunk if all work that uses it has finished. `is_idle` says so of the heap's stream.
    pub(crate) fn vacant_place(&self, id: ChunkId, is_idle: impl FnOnce() -> bool) -> Option<Chunk> {
        let (chunk, held) = self.chunks.iter().find(|(chunk, _)| chunk.id == id)?;
        let guards = self.heap.state.lock().blocks.guards_of(held.block);
        let passed = |guard: &Arc<Fence<D>>| guard.poll().is_ok_and(Progress::is_done);
        (guards.iter().all(passed) && is_idle()).then_some(*chunk)
    }
}

impl<D: Device> Drop for HeldChunks<'_, D> {
    fn drop(&mut self) {
        if !self.chunks.is_empty() {
            let held = self.chunks.iter().map(|(_, held)| *held).collect();
            self.heap.state.lock().blocks.put_back(held);
        }
    }
}

impl<D: Device> Heap<D> {
    /// Notifies the sinks of chunks that the heap no longer has.
    pub(crate) fn tell_unmapped(&self, chunks: &[Chunk]) -> CallbackOutcome {
        let tell = |chunk: &Chunk| self.tell(TraceAction::SegmentUnmap, chunk.at, chunk.bytes);
        chunks.iter().map(tell).fold(CallbackOutcome::default(), CallbackOutcome::and)
    }

    /// Collects the idle chunks of other elastic heaps whose stream is idle.
    pub(crate) fn offers<'a>(&self, others: &'a [Arc<Self>]) -> hal::Result<Vec<DonorOffer<'a, D>>> {
        let (mut offers, mut ends) = (Vec::new(), Vec::new());
        for heap in others.iter().filter(|heap| !ptr::eq(&raw const ***heap, self) && heap.is_elastic()) {
            let mut state = heap.state.lock();
            let chunks: Vec<_> = state.blocks.idle_chunks().into_iter().map(|(chunk, _)| chunk).collect();
            let allocations = heap.allocations();
            drop(state);
            if !chunks.is_empty()
                && let Some(end) = Fence::try_record_at_once(&heap.stream_state)?
            {
                offers.push(DonorOffer { heap, chunks, allocations });
                ends.push(end);
            }
        }
        let mut passed = passed_soon(&ends).into_iter();
        offers.retain(|_| passed.next() == Some(true));
        Ok(offers)
    }

    /// Returns whether the heap has memory, or addresses that wait to be unmapped.
    pub(crate) fn has_memory(&self) -> bool {
        self.reserved() > 0 || self.elastic().is_some_and(|elastic| !elastic.pending_unmaps.lock().is_empty())
    }

    fn allocations(&self) -> u64 {
        self.counters.total(Row::All, Counted::Allocations)
    }

    /// Returns whether the stream has no unfinished work, by one short poll. A captured stream counts as busy.
    pub(crate) fn is_idle(&self) -> hal::Result<bool> {
        let end = Fence::try_record_at_once(&self.stream_state)?;
        end.map_or(Ok(false), |end| end.passes_soon())
    }

    /// Holds the idle chunks that are `wanted`. It holds none if a graph may use them.
    pub(crate) fn hold_chunks(&self, mut wanted: impl FnMut(&Chunk) -> bool) -> HeldChunks<'_, D> {
        let mut state = self.state.lock();
        let moving = if self.permits_release() { self.begin_move(&state) } else { None };
        let mut chunks = Vec::new();
        if moving.is_some() {
            for (chunk, block) in state.blocks.idle_chunks().into_iter().filter(|(chunk, _)| wanted(chunk)) {
                let held = state.blocks.hold(block, chunk.at, chunk.end());
                chunks.extend(held.into_iter().flatten().map(|held| (chunk, held)));
            }
        }
        HeldChunks { heap: self, chunks, _moving: moving }
    }

    /// Begins to move or unmap chunks. Returns `None` if the pool sleeps, since the sleep code then handles all chunks.
    pub(crate) fn begin_move(&self, state: &HeapState<D>) -> Option<RwLockReadGuard<'_, ()>> {
        let elastic = self.elastic().filter(|_| !state.asleep)?;
        Some(elastic.moves.read())
    }
}

/// Holds the chunks of other heaps that a plan uses. Returns the heap whose chunks are no longer available as an error.
pub(crate) fn borrow<'a, D: Device>(
    plan: &Plan,
    offers: &[DonorOffer<'a, D>],
) -> hal::Result<Result<Vec<HeldChunks<'a, D>>, &'a Heap<D>>> {
    let mut lent = Vec::new();
    for DonorOffer { heap, chunks, allocations } in offers {
        let wanted: Vec<_> = chunks.iter().filter(|chunk| plan.moves(chunk)).collect();
        if wanted.is_empty() {
            continue;
        }
        let held = heap.hold_chunks(|chunk| wanted.contains(&chunk));
        let all = held.chunks.len() == wanted.len();
        lent.push(held);
        // The stream was idle. Chunks that were allocated and freed since then may have work, and held ones get no more.
        if !all || (heap.allocations() != *allocations && !heap.is_idle()?) {
            return Ok(Err(heap));
        }
    }
    Ok(Ok(lent))
}
