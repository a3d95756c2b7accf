//! Taking and giving when there is more to look after than the block itself.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device};

use crate::blocks::BlockId;
use crate::fence::Fence;
use crate::heap::{Allocated, Freed, Guard, Heap, HeapState, Request};
use crate::observe::callbacks::{CallbackOutcome, TraceAction};
use crate::observe::history::Level;
use crate::stats::{Counted, Row};
use crate::stream_state::StreamState;

impl<D: Device> Heap<D> {
    /// Takes the free block that fits best, after pending frees whose events have passed; `None` if there is none, or if
    /// requests go elsewhere. A failure of the driver is reported by the retry steps, which ask again.
    #[cold]
    pub(crate) fn take_slowly(self: &Arc<Self>, state: Guard<'_, D>, ask: Request) -> Option<Allocated> {
        let (state, _gathered) = self.gather(state, Level::State);
        if state.away.any() || !self.shared.settings.caches.load(Relaxed) {
            return None;
        }
        if !state.pending.needs_tending() {
            return self.take_carefully(state, ask);
        }
        drop(state);
        self.take_tended(ask).ok().flatten()
    }

    /// Takes the free block that fits best for the heap's own stream, once those that waited and need not are free.
    ///
    /// A failure to find out whether they need to is told if no other block fits.
    pub(crate) fn take_tended(self: &Arc<Self>, ask: Request) -> hal::Result<Option<Allocated>> {
        let tended = self.tend();
        self.reuse_in_capture();
        match self.take_carefully(self.state.lock(), ask) {
            None => tended.map(|()| None),
            taken => Ok(taken),
        }
    }

    fn take_carefully(self: &Arc<Self>, mut state: Guard<'_, D>, ask: Request) -> Option<Allocated> {
        if state.away.asleep {
            return None;
        }
        if state.policy.ages {
            state.shelf.clock = self.shared.settings.clock.fetch_add(1, Relaxed);
        }
        let HeapState { shelf, policy, .. } = &mut *state;
        let id = shelf.take(policy, policy.round(ask.requested));
        let taken = id.get().map(|id| self.hand_out_carefully(&mut state, id, ask));
        if state.shelf.is_loud() {
            self.publish(&mut state);
        }
        drop(state);
        let (taken, peak) = taken?;
        if peak {
            self.shared.ledger.note(&self.counters);
        }
        if self.is_told(TraceAction::Alloc) {
            self.tell_alloc(&taken, ask.requested, CallbackOutcome::default());
        }
        Some(taken)
    }

    /// Hands out a block, and sees to it that the heap stays as long as it is allocated.
    pub(crate) fn hand_out_carefully(
        self: &Arc<Self>,
        state: &mut HeapState<D>,
        id: BlockId,
        ask: Request,
    ) -> (Allocated, bool) {
        if state.keepalive.is_none() {
            state.keepalive = Some(Arc::clone(self));
            state.refresh(&self.shared);
        }
        let (taken, peak) = self.hand_out(state.shelf.block_mut(id), id, ask);
        if ask.raw {
            state.shelf.make_raw(id);
        }
        if taken.bytes >= self.shared.totals.max_split {
            self.shared.totals.oversize_allocations.raise();
        }
        state.note_alloc(id, taken.address, ask.requested);
        (taken, peak)
    }

    /// Takes the guards of a block that was taken for `lane`, but for those that `lane` waited for before.
    pub(crate) fn guards_of(&self, taken: &Allocated, lane: &StreamState<D>) -> Vec<Arc<Fence<D>>> {
        let mut state = self.state.lock();
        let mut guards = state.shelf.take_guards(taken.id);
        if lane.number() == self.lane.number() {
            guards.retain(|guard| {
                let (lane, order) = guard.point();
                state.waited.get(&lane).is_none_or(|last| *last < order)
            });
        }
        guards
    }

    /// Remembers that `lane` was made to wait for `guards`.
    pub(crate) fn note_waits(&self, guards: &[Arc<Fence<D>>], lane: &StreamState<D>) {
        if lane.number() != self.lane.number() {
            return;
        }
        let mut state = self.state.lock();
        for (lane, order) in guards.iter().map(|guard| guard.point()) {
            let last = state.waited.entry(lane).or_insert(order);
            *last = order.max(*last);
        }
    }

    /// Puts a block back that was taken and did not reach its caller, behind the guards it had.
    pub(crate) fn put_back(&self, taken: Allocated, guards: Vec<Arc<Fence<D>>>) {
        let mut state = self.state.lock();
        state.uses.remove(&taken.id);
        state.shelf.block_mut(taken.id).used = false;
        drop(self.give_plainly(state, taken.id, guards));
    }

    #[cold]
    pub(crate) fn give_carefully(&self, mut state: Guard<'_, D>, id: BlockId) -> Freed<D> {
        // While the lock is let go nobody else may free the block by its address.
        let raw = std::mem::take(&mut state.shelf.block_mut(id).raw);
        let (mut state, _gathered) = self.gather(state, Level::All);
        state.shelf.block_mut(id).raw = raw;
        if let Some(uses) = state.take_uses(id) {
            // Once the block does not count any more, another thread may free the last one.
            let heap = state.keepalive.clone();
            return Freed::careful(self.give_used(state, id, uses), heap);
        }
        match self.give_plainly(state, id, Vec::new()) {
            None => Freed::DONE,
            heap => Freed::careful(Ok(()), heap),
        }
    }

    /// Gives back a block that no other stream uses; the heap, where it had to be held or may end now.
    fn give_plainly(&self, mut state: Guard<'_, D>, id: BlockId, guards: Vec<Arc<Fence<D>>>) -> Option<Arc<Self>> {
        let block = state.shelf.block(id);
        let (address, requested) = (block.address, block.requested);
        if state.policy.ages {
            state.shelf.clock = self.shared.settings.clock.load(Relaxed);
        }
        self.become_free_now(&mut state, id, guards);
        if state.shelf.is_loud() {
            self.publish(&mut state);
        }
        let is_told = self.is_told(TraceAction::FreeRequested);
        let held = is_told.then(|| state.keepalive.clone()).flatten();
        let last = self.let_go(&mut state);
        drop(state);
        if is_told {
            self.tell(TraceAction::FreeRequested, address, requested);
            self.tell(TraceAction::FreeCompleted, address, requested);
        }
        last.or(held)
    }

    /// Moves a block that no other stream uses from its caller to the free ones.
    pub(crate) fn become_free_now(&self, state: &mut HeapState<D>, id: BlockId, guards: Vec<Arc<Fence<D>>>) {
        let block = state.shelf.block(id);
        let (kind, bytes) = (block.kind, block.bytes());
        let (address, requested) = (block.address, block.requested);
        self.counters.freed(kind, bytes, requested);
        if bytes >= self.shared.totals.max_split {
            self.shared.totals.oversize_allocations.lower();
        }
        state.note_free_requested(id, address, requested);
        state.note_free_completed(id, address, requested);
        state.shelf.give_guarded(id, guards);
    }

    /// What keeps the heap alive, once it is closed and nothing is allocated any more.
    pub(crate) fn let_go(&self, state: &mut HeapState<D>) -> Option<Arc<Self>> {
        let unused = self.counters.now(Row::All, Counted::Allocations) == 0;
        if state.closed && unused { state.keepalive.take() } else { None }
    }
}
