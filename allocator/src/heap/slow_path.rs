//! Allocations and frees that need more than the fast path.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device};

use crate::blocks::{BlockId, HeapBlocks, SegmentId};
use crate::fence::Fence;
use crate::heap::{Allocated, Freed, Heap, HeapGuard, HeapState, Request};
use crate::heap_policy::HeapPolicy;
use crate::label::Label;
use crate::observe::callbacks::{CallbackOutcome, TraceAction};
use crate::observe::history::Level;
use crate::size::SegmentKind;
use crate::stats::{Counted, Row};
use crate::stream_state::StreamState;

impl<D: Device> Heap<D> {
    /// Allocates the best fit, after it polls one event of every stream that pending blocks wait for. Returns `None` if
    /// no block fits, or if requests are redirected. The retry steps then poll all events, repeat a failed driver call
    /// and report its error.
    #[cold]
    pub(crate) fn allocate_slow(self: &Arc<Self>, state: HeapGuard<'_, D>, request: Request) -> Option<Allocated> {
        let (state, _gathered) = if state.asks_for_stack(Level::State) {
            drop(state);
            let gathered = self.shared.history.gather(Level::State);
            (self.state.lock(), gathered)
        } else {
            (state, None)
        };
        if state.routed || state.asleep || !self.shared.settings.caches.load(Relaxed) {
            return None;
        }
        if !state.pending.has_pending_events() {
            return self.allocate_slow_locked(state, request);
        }
        let (state, _polled) = self.poll_events(state);
        self.allocate_slow_locked(state, request)
    }

    /// Allocates the best fit for the heap's own stream, after it frees the pending blocks whose events have passed.
    ///
    /// Returns an error of the driver only if no other block fits.
    pub(crate) fn allocate_after_events(self: &Arc<Self>, request: Request) -> hal::Result<Option<Allocated>> {
        self.after_events(|| self.allocate_slow_locked(self.state.lock(), request))
    }

    /// Calls `allocate` after it frees the pending blocks whose events have passed.
    ///
    /// Returns an error of the driver only if that allocates nothing.
    pub(crate) fn after_events(&self, allocate: impl FnOnce() -> Option<Allocated>) -> hal::Result<Option<Allocated>> {
        let processed = self.process_events();
        self.reuse_in_capture();
        match allocate() {
            None => processed.map(|()| None),
            allocated => Ok(allocated),
        }
    }

    pub(crate) fn allocate_slow_locked(
        self: &Arc<Self>,
        state: HeapGuard<'_, D>,
        request: Request,
    ) -> Option<Allocated> {
        self.allocate_block(state, request, |blocks, policy| blocks.allocate(policy, policy.round(request.requested)))
    }

    /// Allocates exactly the bytes at an address of a segment, after it frees the pending blocks whose events have passed.
    /// Returns `None` if they are not free.
    pub(crate) fn allocate_at(
        self: &Arc<Self>,
        request: Request,
        segment: SegmentId,
        address: u64,
    ) -> hal::Result<Option<Allocated>> {
        let choose = |blocks: &mut HeapBlocks<_>, policy: &HeapPolicy| {
            let rounded = policy.round(request.requested);
            if self.is_elastic() {
                return blocks.allocate_in(segment, address, rounded);
            }
            if !blocks.is_of_kind(address, rounded) {
                return BlockId::NONE;
            }
            let mut walk = blocks.walk();
            let found = blocks.allocate_at(&mut walk, address, rounded);
            let counted = blocks.counted_split();
            blocks.split = Default::default();
            for (kind, split) in [SegmentKind::Small, SegmentKind::Large].into_iter().zip(counted) {
                blocks.split_grows(kind, split.blocks, split.bytes);
            }
            found.unwrap_or(BlockId::NONE)
        };
        self.after_events(|| self.allocate_block(self.state.lock(), request, choose))
    }

    /// Allocates the block that `choose` takes out of the free ones.
    #[inline(always)]
    pub(crate) fn allocate_block(
        self: &Arc<Self>,
        mut state: HeapGuard<'_, D>,
        request: Request,
        choose: impl FnOnce(&mut HeapBlocks<Arc<Fence<D>>>, &HeapPolicy) -> BlockId,
    ) -> Option<Allocated> {
        if state.asleep {
            return None;
        }
        if state.policy.ages {
            state.blocks.clock = self.shared.settings.clock.fetch_add(1, Relaxed);
        }
        let HeapState { blocks, policy, .. } = &mut *state;
        let id = choose(blocks, policy);
        let allocated = id.get().map(|id| self.mark_allocated_slow(&mut state, id, request));
        if state.blocks.above_watermark {
            self.flush_stats(&mut state.blocks);
        }
        drop(state);
        let (allocated, peak) = allocated?;
        if peak {
            self.shared.peaks.note(&self.counters);
        }
        if self.shared.callbacks.wants(TraceAction::Alloc) {
            self.tell_alloc(&allocated, request.requested, CallbackOutcome::default());
        }
        Some(allocated)
    }

    /// Hands out a block, and keeps the heap alive while the block is allocated.
    #[inline(always)]
    pub(crate) fn mark_allocated_slow(
        self: &Arc<Self>,
        state: &mut HeapState<D>,
        id: BlockId,
        request: Request,
    ) -> (Allocated, bool) {
        state.keepalive.get_or_insert_with(|| Arc::clone(self));
        let (allocated, peak) = self.mark_allocated(&mut state.blocks.blocks[id], id, request);
        if allocated.may_be_raw(request) {
            state.blocks.make_raw(id, request.label);
        }
        if allocated.bytes >= self.shared.totals.max_split {
            self.shared.totals.oversize_allocations.lock().raise(1);
        }
        state.note_alloc(id, allocated.address, request.requested);
        (allocated, peak)
    }

    /// Removes and returns the guards of a block for `stream_state`, except those that the stream already waits for.
    pub(crate) fn guards_of(&self, allocated: &Allocated, stream_state: &StreamState<D>) -> Vec<Arc<Fence<D>>> {
        let mut state = self.state.lock();
        let mut guards = state.blocks.take_guards(allocated.id);
        if stream_state.number == self.stream_state.number {
            guards.retain(|guard| {
                let (stream, order) = guard.order_key();
                state.waited.get(&stream).is_none_or(|last| *last < order)
            });
        }
        guards
    }

    pub(crate) fn note_waits(&self, guards: &[Arc<Fence<D>>], stream_state: &StreamState<D>) {
        if stream_state.number != self.stream_state.number {
            return;
        }
        let mut state = self.state.lock();
        for (stream, order) in guards.iter().map(|guard| guard.order_key()) {
            let last = state.waited.entry(stream).or_insert(order);
            *last = order.max(*last);
        }
    }

    /// Frees a block that did not reach its caller, with its previous guards.
    pub(crate) fn put_back(&self, allocated: Allocated, guards: Vec<Arc<Fence<D>>>) {
        let mut state = self.state.lock();
        state.uses.remove(&allocated.id);
        state.blocks.blocks[allocated.id].slow_free = false;
        drop(self.free_unused(state, allocated.id, guards));
    }

    #[cold]
    pub(crate) fn free_slow(&self, mut state: HeapGuard<'_, D>, id: BlockId) -> Freed<D> {
        // While the lock is released, no other thread may free the block by its address.
        let label = std::mem::replace(&mut state.blocks.blocks[id].label, Label::OWNED);
        // A free must not be lost, so a panic of the source continues after it.
        let (mut state, gathered, outcome) = self.gather(state, Level::All);
        state.blocks.blocks[id].label = label;
        let freed = if let Some(uses) = state.take_uses(id) {
            // After the block is no longer counted, another thread may free the last one.
            let heap = state.keepalive.clone();
            Freed::after_slow_path(self.free_used(state, id, uses), heap)
        } else {
            match self.free_unused(state, id, Vec::new()) {
                None => Freed::DONE,
                heap => Freed::after_slow_path(Ok(()), heap),
            }
        };
        drop((gathered, outcome));
        freed
    }

    /// Frees a block that no other stream uses. Returns the heap if the caller must keep it alive or drop it.
    fn free_unused(&self, mut state: HeapGuard<'_, D>, id: BlockId, guards: Vec<Arc<Fence<D>>>) -> Option<Arc<Self>> {
        let block = &state.blocks.blocks[id];
        let (address, requested) = (block.address, block.requested);
        if state.policy.ages {
            state.blocks.clock = self.shared.settings.clock.load(Relaxed);
        }
        self.become_free_now(&mut state, id, guards);
        if state.blocks.above_watermark {
            self.flush_stats(&mut state.blocks);
        }
        let is_told = self.shared.callbacks.wants(TraceAction::FreeRequested);
        if is_told || state.policy.driver_pool {
            return self.finish_free(state, is_told.then_some((address, requested)));
        }
        self.let_go(&mut state)
    }

    /// Tells the callbacks about a free, and returns memory to the driver's pool.
    #[cold]
    fn finish_free(&self, mut state: HeapGuard<'_, D>, told: Option<(u64, u64)>) -> Option<Arc<Self>> {
        let driver_pool = state.policy.driver_pool;
        let held = state.keepalive.clone();
        let last = self.let_go(&mut state);
        drop(state);
        if let Some((address, requested)) = told {
            self.tell(TraceAction::FreeRequested, address, requested);
            self.tell(TraceAction::FreeCompleted, address, requested);
        }
        if driver_pool {
            // After a failure the memory stays in the heap, for the next request.
            let _ = self.release_idle();
        }
        last.or(held)
    }

    /// Turns an allocated block that no other stream uses into a free one.
    pub(crate) fn become_free_now(&self, state: &mut HeapState<D>, id: BlockId, guards: Vec<Arc<Fence<D>>>) {
        let block = &state.blocks.blocks[id];
        let (kind, address, bytes, requested) = (block.kind, block.address, block.bytes(), block.requested);
        self.counters.freed(kind, bytes, requested);
        if bytes >= self.shared.totals.max_split {
            self.shared.totals.oversize_allocations.lock().lower(1);
        }
        state.note_free(TraceAction::FreeRequested, id, address, requested);
        state.note_free(TraceAction::FreeCompleted, id, address, requested);
        state.blocks.free_guarded(id, guards);
    }

    /// Returns the reference that keeps the heap alive, once the heap is closed and has no allocations.
    pub(crate) fn let_go(&self, state: &mut HeapState<D>) -> Option<Arc<Self>> {
        let unused = self.counters.now(Row::All, Counted::Allocations) == 0;
        if state.closed && unused { state.keepalive.take() } else { None }
    }
}
