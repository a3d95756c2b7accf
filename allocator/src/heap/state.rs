//! The state under a heap's lock, and the two ways to lock it.
//!
//! A hit locks with [`HeapLock::enter`] and tests one flag. The guard that it gets cannot change what the flag depends
//! on. All other code gets a [`HeapGuard`], which derives the flag again when it is dropped.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{Device, StreamRef};

use crate::blocks::{BlockId, HeapBlocks};
use crate::device_state::DeviceState;
use crate::fence::Fence;
use crate::fork::ProcessGuard;
use crate::heap::Heap;
use crate::heap::events::PendingFrees;
use crate::heap::history::{HeapHistory, Stacks};
use crate::heap_policy::HeapPolicy;
use crate::observe::callbacks::TraceAction;
use crate::stream_state::StreamState;
use crate::sync::lock::{self, Lock, LockGuard};

/// The lock of a heap's state.
#[derive(Debug)]
pub(crate) struct HeapLock<D: Device>(Lock<HeapState<D>>);

impl<D: Device> HeapLock<D> {
    /// Creates the state of a heap without allocations. Its first request takes the slow path.
    pub(super) fn new(blocks: HeapBlocks<Arc<Fence<D>>>, policy: HeapPolicy, shared: Arc<DeviceState<D>>) -> Self {
        Self(Lock::new(HeapState {
            blocks,
            policy,
            uses: HashMap::new(),
            pending: PendingFrees::default(),
            waited: HashMap::new(),
            keepalive: None,
            closed: false,
            redirect: Redirect::default(),
            history_state: None,
            stacks: Box::default(),
            fast_path: false,
            shared,
        }))
    }

    /// Locks the state for any change.
    #[inline]
    pub(crate) fn lock(&self) -> HeapGuard<'_, D> {
        HeapGuard(self.0.lock())
    }

    /// Locks the state for a hit, if this thread owns the lock's bias.
    #[inline(always)]
    pub(super) fn enter(&self) -> Option<FastGuard<'_, D>> {
        lock::enter(&self.0).map(FastGuard)
    }

    /// Locks the state for a hit, except in a forked child.
    #[inline(always)]
    pub(super) fn share(&self, origin: &ProcessGuard) -> Option<FastGuard<'_, D>> {
        lock::share(&self.0, origin).map(FastGuard)
    }
}

/// The locked state of a heap, for a hit or a free. It gives access only to blocks.
pub(crate) struct FastGuard<'a, D: Device>(LockGuard<'a, HeapState<D>>);

impl<'a, D: Device> FastGuard<'a, D> {
    /// Returns whether the fast path applies.
    #[inline(always)]
    pub(super) fn fast_path(&self) -> bool {
        self.0.fast_path
    }

    #[inline(always)]
    pub(super) fn blocks(&mut self) -> (&mut HeapBlocks<Arc<Fence<D>>>, &HeapPolicy) {
        let state = &mut *self.0;
        (&mut state.blocks, &state.policy)
    }

    /// Continues with a guard for any change.
    #[inline]
    pub(super) fn slow(self) -> HeapGuard<'a, D> {
        HeapGuard(self.0)
    }
}

/// The locked state of a heap, for any change. Its drop derives the fast-path flag.
pub(crate) struct HeapGuard<'a, D: Device>(LockGuard<'a, HeapState<D>>);

impl<D: Device> Deref for HeapGuard<'_, D> {
    type Target = HeapState<D>;

    fn deref(&self) -> &HeapState<D> {
        &self.0
    }
}

impl<D: Device> DerefMut for HeapGuard<'_, D> {
    fn deref_mut(&mut self) -> &mut HeapState<D> {
        &mut self.0
    }
}

impl<D: Device> Drop for HeapGuard<'_, D> {
    /// The fast path applies if the cache is on, no block is pending and no request is redirected. No tracker or
    /// history is active, and neither ages nor oversize blocks are counted. The heap also keeps itself alive.
    fn drop(&mut self) {
        let state = &mut *self.0;
        state.fast_path = state.history_state.is_none()
            && state.keepalive.is_some()
            && !state.closed
            && !state.redirect.any()
            && !state.policy.ages
            && !state.pending.has_pending_events()
            && state.shared.settings.caches.load(Relaxed)
            && !state.shared.callbacks.wants(TraceAction::Alloc)
            && state.shared.totals.max_split == u64::MAX;
    }
}

/// The state under a heap's lock.
#[derive(Debug)]
pub(crate) struct HeapState<D: Device> {
    pub(crate) blocks: HeapBlocks<Arc<Fence<D>>>,
    pub(crate) policy: HeapPolicy,
    /// For every block that other streams use, the streams besides the heap's own.
    pub(super) uses: HashMap<BlockId, StreamUses<D>>,
    pub(super) pending: PendingFrees<D>,
    /// For every stream state, by number, its last fence that the heap's own stream waits for.
    pub(super) waited: HashMap<u64, u64>,
    /// The heap itself, from its first allocation until it is closed and empty. Allocations point to the heap without
    /// owning it, so this reference keeps it alive.
    pub(super) keepalive: Option<Arc<Heap<D>>>,
    /// Whether the allocator is dropped, and only allocations still need the heap.
    pub(super) closed: bool,
    /// Where requests may be redirected.
    pub(crate) redirect: Redirect,
    /// The history of this heap, while one is recorded.
    pub(super) history_state: Option<Box<HeapHistory>>,
    /// The stacks that a history has recorded. They stay when the history stops.
    pub(super) stacks: Box<Stacks>,
    /// Whether an allocation or a free needs no work beyond the block itself. A hit tests only this field.
    fast_path: bool,
    /// The settings of all heaps.
    shared: Arc<DeviceState<D>>,
}

impl<D: Device> HeapState<D> {
    /// Removes and returns the streams that use a block besides the heap's own; `None` if there are none.
    pub(super) fn take_uses(&mut self, id: BlockId) -> Option<StreamUses<D>> {
        if !std::mem::take(&mut self.blocks.block_mut(id).slow_free) {
            return None;
        }
        if self.history_state.is_none() {
            self.stacks.set(id, 0);
        }
        self.uses.remove(&id)
    }
}

/// Where requests may be redirected.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Redirect {
    /// To the partner, which has the configured kind of segments.
    pub(super) partner: bool,
    /// To another pool, if a route exists.
    pub(super) route: bool,
    /// To no heap: the pool sleeps.
    pub(crate) asleep: bool,
}

impl Redirect {
    pub(super) const fn any(self) -> bool {
        self.partner || self.route || self.asleep
    }
}

/// The streams that use an allocated block besides the heap's own.
#[derive(Debug)]
pub(crate) struct StreamUses<D: Device> {
    pub(super) users: Vec<Arc<StreamState<D>>>,
    /// How many of them, counted from the end, were recorded during a capture.
    pub(super) captured: usize,
    /// Whether another stream allocated the block, so that its next use must wait for that stream.
    pub(super) lent: bool,
    /// How many exports to other processes are open. The block is not reused before the last one ends.
    pub(super) exports: u32,
}

impl<D: Device> Default for StreamUses<D> {
    fn default() -> Self {
        Self { users: Vec::new(), captured: 0, lent: false, exports: 0 }
    }
}

impl<D: Device> StreamUses<D> {
    /// The use of a block that `stream_state` allocated instead of the heap's own stream.
    pub(super) fn lent_to(stream_state: Arc<StreamState<D>>) -> Self {
        Self { users: vec![stream_state], lent: true, ..Self::default() }
    }

    /// The stream that allocated the block instead of the heap's own.
    pub(super) fn borrower(&self) -> Option<StreamRef> {
        let first = self.users.first().filter(|_| self.lent)?;
        Some(first.handle())
    }
}
