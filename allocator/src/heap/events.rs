//! Blocks that their callers freed while other streams still use them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device, Progress};

use crate::blocks::{BlockId, BlockState};
use crate::fence::Fence;
use crate::heap::graph_reuse::{Ancestors, Deferred};
use crate::heap::pending::Poll;
use crate::heap::{Heap, HeapGuard, HeapState, StreamUses};
use crate::observe::callbacks::{CallbackOutcome, TraceAction};
use crate::stats::Counted;
use crate::stream_state::StreamState;

impl<D: Device> Heap<D> {
    /// Notes that a block of a pool serves a request of the default pool.
    pub(crate) fn note_lent(&self, id: BlockId) {
        let mut state = self.state.lock();
        state.blocks.blocks[id].slow_free = true;
        state.uses.entry(id).or_default().lent = true;
    }

    /// Records that `stream_state` uses an allocated block. If `guarded`, the next use of the block waits on the device.
    pub(crate) fn record_use(&self, id: BlockId, stream_state: &Arc<StreamState<D>>, guarded: bool) {
        if stream_state.number == self.stream_state.number {
            return;
        }
        // A capture that was not announced is missed here. Its use then costs a fence after the capture.
        let captured = stream_state.shared.knows_of_captures() && stream_state.is_capturing();
        let mut state = self.state.lock();
        state.blocks.blocks[id].slow_free = true;
        let uses = state.uses.entry(id).or_default();
        uses.guarded |= guarded;
        if let Some(at) = uses.users.iter().position(|known| Arc::ptr_eq(known, stream_state)) {
            let was_captured = at >= uses.users.len() - uses.captured;
            if captured || !was_captured {
                return;
            }
            // No graph records this use.
            uses.users.remove(at);
            uses.captured -= 1;
        }
        if captured {
            uses.users.push(Arc::clone(stream_state));
            uses.captured += 1;
        } else {
            uses.users.insert(0, Arc::clone(stream_state));
        }
    }

    /// Frees a block that other streams use, for a caller that keeps the heap alive.
    pub(crate) fn free_used(&self, mut state: HeapGuard<'_, D>, id: BlockId, uses: StreamUses<D>) -> hal::Result<()> {
        let (address, requested) = self.become_pending(&mut state, id);
        // The caller keeps the heap alive too.
        drop(self.let_go(&mut state));
        let unexported = if uses.exports == 0 {
            Some(uses)
        } else {
            // Under the same lock, so that the thread that ends the last export finds the block.
            state.pending.exported.insert(id, uses);
            None
        };
        drop(state);
        // The fences are recorded even if a tracker panics.
        let _told = self.tell(TraceAction::FreeRequested, address, requested);
        self.shared.peaks.note(&self.counters);
        unexported.map_or(Ok(()), |uses| self.record_fences(id, uses).map(drop))
    }

    /// Turns an allocated block into a pending one. Returns its address and requested size.
    pub(crate) fn become_pending(&self, state: &mut HeapState<D>, id: BlockId) -> (u64, u64) {
        let block = &mut state.blocks.blocks[id];
        block.state = BlockState::Pending;
        let (kind, address, bytes, requested) = (block.kind, block.address, block.bytes(), block.requested);
        // The requested bytes count until the block is free, so only the allocation itself ends here.
        self.counters.freed(kind, bytes, 0);
        self.counters.raise(Counted::Pending, kind, 1);
        self.counters.raise(Counted::PendingBytes, kind, bytes);
        if bytes >= self.shared.totals.max_split {
            self.shared.totals.oversize_allocations.lock().lower(1);
        }
        state.note_free(TraceAction::FreeRequested, id, address, requested);
        (address, requested)
    }

    /// Records a fence in every stream that uses the block. After a failure the uses are kept for a later call.
    ///
    /// During a capture the block waits for the end of the capture, or until the order of the graph permits reuse.
    pub(crate) fn record_fences(&self, id: BlockId, uses: StreamUses<D>) -> hal::Result<CallbackOutcome> {
        let Some(fences) = self.try_record_fences(&uses).transpose() else {
            let frontier_nodes = self.frontier_nodes(&uses);
            self.state.lock().pending.deferred.push(Deferred { block: id, uses, frontier_nodes });
            return Ok(CallbackOutcome::default());
        };
        let mut state = self.state.lock();
        match fences {
            // Another allocator's fence is polled. The driver's pool needs no poll: its free waits on the device.
            Ok(fences)
                if (uses.guarded || state.policy.driver_pool)
                    && fences.iter().all(|fence| Arc::ptr_eq(&fence.stream.shared, &self.shared)) =>
            {
                let guards = fences.into_iter().map(Arc::new).collect();
                Ok(self.become_free(state, vec![(id, guards)]))
            }
            Ok(fences) => {
                state.pending.push(id, fences);
                Ok(CallbackOutcome::default())
            }
            Err(error) => {
                state.pending.unrecorded.push((id, uses));
                Err(error)
            }
        }
    }

    /// Records a fence in every user's stream. Returns `None` if one of them, or the heap's own stream, is captured.
    ///
    /// While no capture is announced, only the heap's own stream is queried. A fence in a captured stream does not pass
    /// before the end of the capture. But it must not become a guard: a stream that waits for it would join the capture.
    fn try_record_fences(&self, uses: &StreamUses<D>) -> hal::Result<Option<Vec<Fence<D>>>> {
        let all = uses.guarded || self.shared.knows_of_captures() || self.policy().driver_pool;
        for stream_state in uses.users.iter().filter(|_| all).chain([&self.stream_state]) {
            if stream_state.ask_capturing()? {
                return Ok(None);
            }
        }
        let record = |user| if all { Fence::record(user) } else { Fence::record_unchecked(user) };
        uses.users.iter().map(record).collect::<hal::Result<_>>().map(Some)
    }

    /// Records the fences of a block freed during a capture. Captured uses need none: their memory stays in the pool.
    fn record_fences_after_capture(&self, id: BlockId, mut uses: StreamUses<D>) -> hal::Result<CallbackOutcome> {
        if !uses.users.iter().any(|stream_state| stream_state.is_capturing()) {
            uses.users.truncate(uses.users.len() - uses.captured);
            uses.captured = 0;
        }
        if uses.users.is_empty() {
            return Ok(self.become_free(self.state.lock(), vec![(id, Vec::new())]));
        }
        self.record_fences(id, uses)
    }

    /// Frees pending blocks, each with the guards of its next use.
    pub(crate) fn become_free(&self, mut state: HeapGuard<'_, D>, blocks: Vec<GuardedBlock<D>>) -> CallbackOutcome {
        let mut freed = Vec::new();
        for (id, guards) in blocks {
            let block = &state.blocks.blocks[id];
            let (kind, address, bytes, requested) = (block.kind, block.address, block.bytes(), block.requested);
            freed.push((address, requested));
            state.note_free(TraceAction::FreeCompleted, id, address, requested);
            self.counters.lower(Counted::Pending, kind, 1);
            self.counters.lower(Counted::PendingBytes, kind, bytes);
            self.counters.lower(Counted::RequestedBytes, kind, requested);
            state.blocks.free_guarded(id, guards);
        }
        self.flush_stats(&mut state.blocks);
        let driver_pool = state.policy.driver_pool;
        drop(state);
        let tell = |(address, requested)| self.tell(TraceAction::FreeCompleted, address, requested);
        let told = freed.into_iter().map(tell).fold(CallbackOutcome::default(), CallbackOutcome::and);
        // After a failure the memory stays in the heap, for the next request.
        if driver_pool { told.and(CallbackOutcome::of(|| _ = self.release_idle())) } else { told }
    }

    /// Polls one event of every stream, and frees the blocks that wait for no other; all of them if more is to be done.
    pub(crate) fn poll_events<'a>(&'a self, mut state: HeapGuard<'a, D>) -> (HeapGuard<'a, D>, hal::Result<()>) {
        let pending = &state.pending;
        if !pending.unrecorded.is_empty() || !pending.deferred.is_empty() || self.shared.routed.load(Relaxed) {
            drop(state);
            let processed = self.process_events();
            self.reuse_in_capture();
            return (self.state.lock(), processed);
        }
        let polls = state.pending.next_polls();
        drop(state);
        // No lock is held, since the driver may be slow.
        let polled: Vec<_> = {
            // A stream may be captured without the allocator's knowledge, which forbids a query of an event.
            let _relaxed = self.shared.relax_capture();
            polls.iter().map(Poll::ask).collect()
        };
        let mut state = self.state.lock();
        let (done, result) = note_all(&mut state, &polls, &polled);
        if !done.is_empty() {
            drop(self.become_free(state, done));
            state = self.state.lock();
        }
        (state, result)
    }

    /// Returns whether a fence has passed that was not processed. It calls no sink, and does not wait for the device.
    pub(crate) fn has_passed_events(&self) -> hal::Result<bool> {
        if !self.state.lock().pending.has_pending_events() || self.stream_state.ask_capturing()? {
            return Ok(false);
        }
        let _relaxed = self.shared.relax_capture();
        let firsts = self.state.lock().pending.first_fences();
        Ok(firsts.iter().any(|first| first.poll().is_ok_and(Progress::is_done)))
    }

    /// Records the fences that failed before, and frees the blocks that wait for no fence any more.
    #[cold]
    pub(crate) fn process_events(&self) -> hal::Result<()> {
        if !self.state.lock().pending.has_pending_events() || self.stream_state.ask_capturing()? {
            return Ok(());
        }
        // Another stream may be captured, which forbids a query of an event.
        let _relaxed = self.shared.relax_capture();
        let mut result = Ok(());
        // While these blocks are in no list, a request that finds no memory waits for this call.
        let release = self.shared.in_flight.release();
        let (unrecorded, deferred) = {
            let pending = &mut self.state.lock().pending;
            pending.reach = Ancestors::default();
            (std::mem::take(&mut pending.unrecorded), std::mem::take(&mut pending.deferred))
        };
        // A panic of a sink continues at the end: no other list has the blocks that come after.
        let mut told = CallbackOutcome::default();
        let unrecorded = unrecorded.into_iter().map(|(id, uses)| self.record_fences(id, uses));
        let deferred =
            deferred.into_iter().map(|Deferred { block, uses, .. }| self.record_fences_after_capture(block, uses));
        for marked in unrecorded.chain(deferred) {
            match marked {
                Ok(more) => told = told.and(more),
                Err(error) => result = result.and(Err(error)),
            }
        }
        release.cancel();
        let mut polls = self.state.lock().pending.last_polls();
        while !polls.is_empty() {
            let polled: Vec<_> = polls.iter().map(Poll::ask).collect();
            let mut state = self.state.lock();
            let (done, noted) = note_all(&mut state, &polls, &polled);
            let next =
                polls.iter().zip(&polled).filter_map(|(poll, passed)| state.pending.after(poll, (*passed).ok()?));
            polls = next.collect();
            told = told.and(self.become_free(state, done));
            result = result.and(noted);
        }
        drop(told);
        result
    }
}

/// Notes the results of polls. Returns the blocks that wait for no fence any more, and the first failure.
fn note_all<D: Device>(
    state: &mut HeapState<D>,
    polls: &[Poll<D>],
    polled: &[hal::Result<bool>],
) -> (Vec<GuardedBlock<D>>, hal::Result<()>) {
    let (mut done, mut result) = (Vec::new(), Ok(()));
    for (poll, passed) in polls.iter().zip(polled) {
        match passed {
            Ok(passed) => state.pending.note(poll, *passed, &mut done),
            Err(error) => result = result.and(Err(*error)),
        }
    }
    (done.into_iter().map(|id| (id, Vec::new())).collect(), result)
}

/// A block that becomes free, with the guards of its next use.
type GuardedBlock<D> = (BlockId, Vec<Arc<Fence<D>>>);
