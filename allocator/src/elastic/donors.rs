//! Idle chunks that a thread holds in order to move or release them.
//!
//! Another heap, the donor, lists its idle chunks without holding them. The requesting thread holds them once its plan
//! needs them. If they are gone by then, or their stream is busy again, the thread plans again.

use std::sync::{Arc, RwLockReadGuard};
use std::{mem, ptr};

use cachette_hal::{self as hal, Device, ErrorKind};

use crate::blocks::{Chunk, ReservedBlock};
use crate::elastic::map::Leftover;
use crate::elastic::policy::Plan;
use crate::elastic::state::PendingUnmap;
use crate::fence::Fence;
use crate::heap::{Heap, HeapState};
use crate::observe::callbacks::{CallbackOutcome, TraceAction};
use crate::stats::Counted;

/// A heap and its idle chunks, not yet held.
pub(crate) type DonorOffer<'a, D> = (&'a Heap<D>, Vec<Chunk>);

/// Chunks of one heap that a thread holds, and their addresses. A drop puts them back.
#[derive(Debug)]
pub(crate) struct HeldChunks<'a, D: Device> {
    pub(crate) heap: &'a Heap<D>,
    pub(crate) chunks: Vec<(Chunk, ReservedBlock)>,
    /// The lock that a pool waits for before it sleeps; `None` in a heap that grows, since the pool waits for that too.
    pub(crate) _moving: Option<RwLockReadGuard<'a, ()>>,
}

impl<D: Device> HeldChunks<'_, D> {
    /// Turns the addresses into pending unmaps, which end after `fences` and the guards of the blocks have passed.
    /// Returns these guards.
    ///
    /// The heap no longer counts the chunks that are `lost`. If they are `released`, they end with this mapping.
    pub(crate) fn abandon(
        mut self,
        fences: &[Arc<Fence<D>>],
        lost: impl Fn(&Chunk) -> bool,
        released: bool,
    ) -> (Vec<Arc<Fence<D>>>, CallbackOutcome) {
        let (heap, chunks) = (self.heap, mem::take(&mut self.chunks));
        let (mut all_guards, mut outcome) = (Vec::new(), CallbackOutcome::default());
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
            let left = vec![Leftover { chunk: *chunk, last: released, mapped: true }];
            heap.add_pending_unmap(PendingUnmap { block: held.block, left, fences: [&guards, fences].concat() });
        }
        heap.flush_stats(&mut state.blocks);
        drop(state);
        for (chunk, _) in &chunks {
            outcome = outcome.and(heap.tell(TraceAction::SegmentUnmap, chunk.at, chunk.bytes));
        }
        (all_guards, outcome)
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
    /// Collects the idle chunks of other elastic heaps whose stream is idle.
    pub(crate) fn offers<'a>(&self, others: &'a [Arc<Self>]) -> hal::Result<Vec<DonorOffer<'a, D>>> {
        let mut offers = Vec::new();
        for heap in others.iter().filter(|heap| !ptr::eq(&raw const ***heap, self) && heap.elastic.is_some()) {
            let mut chunks: Vec<_> = heap.state.lock().blocks.idle_chunks();
            if chunks.is_empty() || !heap.is_idle()? {
                continue;
            }
            self.shared.chunks.retain_movable(&mut chunks);
            offers.push((&**heap, chunks.into_iter().map(|(chunk, _)| chunk).collect()));
        }
        Ok(offers)
    }

    /// Returns whether all work queued in the heap's stream has finished, according to one short poll.
    ///
    /// A captured stream counts as busy and is not polled, since an event would become part of its graph.
    fn is_idle(&self) -> hal::Result<bool> {
        if self.stream_state.ask_capturing()? {
            return Ok(false);
        }
        match Fence::record(&self.stream_state) {
            // Another thread has begun a capture in the meantime.
            Err(error) if error.kind() == ErrorKind::CaptureForbids => Ok(false),
            marked => marked?.passes_soon(),
        }
    }

    /// Holds the idle chunks that are `wanted`. It holds none if a graph may use them.
    pub(crate) fn hold_chunks(&self, wanted: impl Fn(&Chunk) -> bool) -> HeldChunks<'_, D> {
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
        let elastic = self.elastic.as_ref().filter(|_| !state.redirect.asleep)?;
        Some(elastic.moves.read())
    }
}

/// Holds the chunks of other heaps that a plan uses. Returns `None` if one of them is no longer available.
pub(crate) fn borrow<'a, D: Device>(
    plan: &Plan,
    offers: &[DonorOffer<'a, D>],
) -> hal::Result<Option<Vec<HeldChunks<'a, D>>>> {
    let mut lent = Vec::new();
    for (heap, chunks) in offers {
        let wanted: Vec<_> = chunks.iter().filter(|chunk| plan.moves(chunk)).collect();
        if wanted.is_empty() {
            continue;
        }
        let held = heap.hold_chunks(|chunk| wanted.contains(&chunk));
        let all = held.chunks.len() == wanted.len();
        lent.push(held);
        // Held chunks receive no further work, so the work that is now in the stream is the last.
        if !all || !heap.is_idle()? {
            return Ok(None);
        }
    }
    Ok(Some(lent))
}
