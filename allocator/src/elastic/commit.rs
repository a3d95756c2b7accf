//! Carrying out a plan on the device, with a commit or an undo at the end.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device, ErrorKind};

use crate::address_index::SegmentRef;
use crate::blocks::{Chunk, ReservedBlock};
use crate::elastic::donors::DonatedChunks;
pub(crate) use crate::elastic::grow::{Begun, Tried};
use crate::elastic::map::{self, Unfilled};
use crate::fence::Fence;
use crate::heap::{Allocated, Heap, HeapState, Request};
use crate::observe::callbacks::{CallbackOutcome, TraceAction};
use crate::stats::Counted;

impl<D: Device> Heap<D> {
    /// Carries out a plan. Returns [`Tried::NoMemory`] if the device or the limit refuses.
    pub(crate) fn carry_out(
        self: &Arc<Self>,
        request: Request,
        begun: Begun,
        lent: Vec<DonatedChunks<D>>,
    ) -> hal::Result<Tried> {
        let new = begun.plan.new_bytes();
        let totals = &self.shared.totals;
        let Some(reservation) = self.shared.reserve(new) else {
            self.undo(begun, lent, &[]);
            return Ok(Tried::NoMemory);
        };
        let filled = self
            .fence_for(&begun)
            .map_err(Unfilled::from)
            .and_then(|fence| Ok((fence, map::fill(&self.shared, &begun.plan.fills, begun.plan.kind())?)));
        match filled {
            Ok((fence, chunks)) => {
                reservation.keep(new);
                let made = begun.plan.fills.iter().filter(|fill| fill.spare.is_none()).count();
                totals.device_allocs.fetch_add(made as u64, Relaxed);
                self.shared.chunks.spent.fetch_add(begun.plan.fills.len() as u64, Relaxed);
                let allocated = self.commit(request, begun, lent, &chunks, fence.as_ref());
                Ok(Tried::Served(allocated))
            }
            Err(Unfilled { error, left, refused }) => {
                let kept = || left.iter().filter(|left| left.chunk.is_some());
                let bytes: u64 = kept().map(|left| left.bytes).sum();
                // Memory that the device did not take back counts as allocated, so that its later release balances the
                // counters.
                totals.device_allocs.fetch_add(kept().count() as u64, Relaxed);
                reservation.keep(bytes);
                self.undo(begun, lent, &left);
                for id in &refused {
                    self.shared.chunks.pin(*id);
                }
                if !refused.is_empty() {
                    return Ok(Tried::Refused);
                }
                match error.kind() {
                    ErrorKind::OutOfMemory => Ok(Tried::NoMemory),
                    _ => Err(error),
                }
            }
        }
    }

    /// Records the fence after which no queued work uses the old addresses of chunks that move within the heap.
    fn fence_for(&self, begun: &Begun) -> hal::Result<Option<Arc<Fence<D>>>> {
        if begun.moved.chunks.is_empty() {
            return Ok(None);
        }
        Ok(Some(Arc::new(Fence::record(&self.stream_state)?)))
    }

    /// Allocates the block of a plan whose place now has memory everywhere.
    fn commit(
        self: &Arc<Self>,
        request: Request,
        begun: Begun,
        lent: Vec<DonatedChunks<D>>,
        chunks: &[Chunk],
        fence: Option<&Arc<Fence<D>>>,
    ) -> Allocated {
        let Begun { plan, place, moved } = begun;
        let mut outcome = CallbackOutcome::default();
        let mut guards = Vec::new();
        let kind = plan.kind();
        let mut gained = plan.new_bytes();
        for lent in lent {
            gained += lent.moved.chunks.iter().map(|(chunk, _)| chunk.bytes).sum::<u64>();
            guards.extend(lent.guards);
            outcome = outcome.and(lent.heap.let_go_of(lent.moved, &[], true));
        }
        guards.extend(self.guards_of_moved(&moved));
        // The heap already has these chunks; from now on they count for the other kind.
        let others = moved.chunks.iter().filter(|(chunk, _)| chunk.kind != kind);
        let turned: u64 = others.map(|(chunk, _)| chunk.bytes).sum();
        let points = fence.map_or(&[][..], std::slice::from_ref);
        outcome = outcome.and(self.let_go_of(moved, points, false));
        let mut state = self.state.lock();
        for chunk in chunks {
            state.blocks.add_chunk(*chunk);
            self.index_chunk(&state, place[0], *chunk);
            state.note_gain(TraceAction::SegmentMap, chunk.at, chunk.bytes);
        }
        let rounded = state.policy.round(request.requested);
        let id = state.blocks.commit(&place, rounded, guards);
        self.counters.lower(Counted::ReservedBytes, kind.other(), turned);
        self.counters.raise(Counted::ReservedBytes, kind, gained + turned);
        let (allocated, _) = self.mark_allocated_slow(&mut state, id, request);
        self.flush_stats(&mut state.blocks);
        drop(state);
        self.shared.peaks.note(&self.counters);
        for chunk in chunks {
            outcome = outcome.and(self.tell(TraceAction::SegmentMap, chunk.at, chunk.bytes));
        }
        self.tell_alloc(&allocated, request.requested, outcome);
        allocated
    }

    fn index_chunk(&self, state: &HeapState<D>, place: ReservedBlock, chunk: Chunk) {
        let home = SegmentRef { heap: self.number, segment: state.blocks.block(place.block).segment };
        self.shared.index.set(chunk.at, chunk.bytes, Some(home));
    }

    /// Undoes a plan, except at addresses where the driver left a mapping.
    pub(crate) fn undo(&self, begun: Begun, lent: Vec<DonatedChunks<D>>, leftovers: &[map::Leftover]) {
        for DonatedChunks { heap, moved, .. } in lent {
            heap.put_back_chunks(&moved);
        }
        self.put_back_chunks(&begun.moved);
        let mut state = self.state.lock();
        for held in begun.place {
            let block = state.blocks.block(held.block);
            let range = block.address..block.address + block.bytes();
            let here: Vec<_> = leftovers.iter().filter(|left| range.contains(&left.at)).copied().collect();
            if here.is_empty() {
                state.blocks.put_back(vec![held]);
                continue;
            }
            for left in here.iter().filter(|left| left.chunk.is_some()) {
                self.counters.raise(Counted::ReservedBytes, left.kind, left.bytes);
            }
            state.blocks.abandon(held);
            self.add_pending_unmap(held.block, here, Vec::new());
        }
    }
}
