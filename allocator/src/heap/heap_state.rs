//! The state under a heap's lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::Device;

use crate::blocks::{BlockId, HeapBlocks};
use crate::device_state::DeviceState;
use crate::fence::Fence;
use crate::heap::Heap;
use crate::heap::fast_path::FastPath;
use crate::heap::history::{HeapHistory, Stacks};
use crate::heap::pending::PendingFrees;
use crate::heap_policy::HeapPolicy;
use crate::observe::callbacks::TraceAction;
use crate::stats::Counters;
use crate::stream_state::StreamState;

/// The state under a heap's lock.
#[derive(Debug)]
pub(crate) struct HeapState<D: Device> {
    pub(crate) blocks: HeapBlocks<Arc<Fence<D>>>,
    pub(crate) policy: HeapPolicy,
    /// For every block that other streams use, the streams besides the heap's own.
    pub(crate) uses: HashMap<BlockId, StreamUses<D>>,
    pub(crate) pending: PendingFrees<D>,
    /// For every stream state, by number, its last fence that the heap's own stream waits for.
    pub(super) waited: HashMap<u64, u64>,
    /// The heap itself, from its first allocation until it is closed and empty. Allocations point to the heap without
    /// owning it, so this reference keeps it alive.
    pub(super) keepalive: Option<Arc<Heap<D>>>,
    /// Whether the allocator is dropped, and only allocations still need the heap.
    pub(super) closed: bool,
    /// Where requests may be redirected.
    pub(crate) redirect: Redirect,
    /// The counters of the heap while the peak tracker has it parked.
    pub(super) parked: Option<Arc<Counters>>,
    /// The history of this heap, while one is recorded.
    pub(crate) history_state: Option<Box<HeapHistory>>,
    /// The stacks that a history has recorded. They stay when the history stops.
    pub(crate) stacks: Box<Stacks>,
    /// The settings of all heaps.
    shared: Arc<DeviceState<D>>,
}

impl<D: Device> HeapState<D> {
    /// The state of a heap without allocations.
    pub(super) fn new(blocks: HeapBlocks<Arc<Fence<D>>>, policy: HeapPolicy, shared: Arc<DeviceState<D>>) -> Self {
        Self {
            blocks,
            policy,
            uses: HashMap::new(),
            pending: PendingFrees::default(),
            waited: HashMap::new(),
            keepalive: None,
            closed: false,
            redirect: Redirect::default(),
            parked: None,
            history_state: None,
            stacks: Box::default(),
            shared,
        }
    }

    /// Returns what an allocation or a free may do without work beyond the block itself.
    ///
    /// The last-freed block may be used if the cache is on and serves the requests, and no request is redirected. No tracker or
    /// history is active, and neither ages nor oversize blocks are counted. The heap also keeps itself alive.
    pub(super) fn fast_path(&self) -> FastPath {
        let last_freed = self.history_state.is_none()
            && self.keepalive.is_some()
            && !self.closed
            && self.parked.is_none()
            && !self.redirect.any()
            && !self.policy.ages
            && !self.policy.driver_pool
            && self.shared.settings.caches.load(Relaxed)
            && !self.shared.callbacks.wants(TraceAction::Alloc)
            && self.shared.totals.max_split == u64::MAX;
        FastPath { last_freed, search: last_freed && !self.pending.has_pending_events() }
    }

    /// Ends the parking of the heap: its counters may change now.
    #[inline]
    pub(super) fn unpark(&mut self) {
        if let Some(counters) = self.parked.take() {
            self.shared.peaks.unpark(&counters);
        }
    }

    /// Removes and returns the streams that use a block besides the heap's own; `None` if there are none.
    pub(crate) fn take_uses(&mut self, id: BlockId) -> Option<StreamUses<D>> {
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
    /// To another pool, if a route exists.
    pub(crate) route: bool,
    /// To no heap: the pool sleeps.
    pub(crate) asleep: bool,
}

impl Redirect {
    pub(super) const fn any(self) -> bool {
        self.route || self.asleep
    }
}

/// The streams that use an allocated block besides the heap's own.
#[derive(Debug)]
pub(crate) struct StreamUses<D: Device> {
    pub(crate) users: Vec<Arc<StreamState<D>>>,
    /// How many of them, counted from the end, were recorded during a capture.
    pub(super) captured: usize,
    /// Whether the next use of the block waits on the device for these streams, so that it is free at once.
    pub(super) guarded: bool,
    /// How many exports to other processes are open. The block is not reused before the last one ends.
    pub(crate) exports: u32,
}

impl<D: Device> Default for StreamUses<D> {
    fn default() -> Self {
        Self { users: Vec::new(), captured: 0, guarded: false, exports: 0 }
    }
}
