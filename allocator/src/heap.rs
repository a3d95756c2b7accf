//! A heap: the free blocks of one stream in one pool, under a lock of its own.

pub(crate) mod allocate;
pub(crate) mod ancestors;
pub(crate) mod asleep;
pub(crate) mod copy;
pub(crate) mod events;
#[cfg(feature = "ipc")]
pub(crate) mod export;
pub(crate) mod free;
pub(crate) mod graph_reuse;
pub(crate) mod history;
pub(crate) mod restore;
pub(crate) mod segments;
pub(crate) mod slow_path;
pub(crate) mod view;

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use cachette_hal::{Device, StreamRef};

use crate::blocks::{BlockId, HeapBlocks};
use crate::device_state::DeviceState;
use crate::fence::Fence;
use crate::observe::callbacks::{CallbackOutcome, TraceAction, TraceEvent};
use crate::observe::tracing;
use crate::policy::Policy;
use crate::pool::PoolId;
use crate::pool::state::PoolState;
use crate::stats::Counters;
use crate::stream_state::StreamState;
use crate::sync::lock::{self, Lock};

use crate::elastic::state::ElasticState;
use crate::heap::events::PendingFrees;
use crate::heap::history::HeapHistory;
pub(crate) use allocate::{Allocated, Request};
pub(crate) use copy::HeapCopy;
#[cfg(feature = "ipc")]
pub(crate) use export::{BlockMemory, ExportRefusal, ExportedRange};
pub(crate) use free::Freed;
pub(crate) use restore::SavedHeap;
pub(crate) use segments::NewSegment;
pub(crate) use view::HeapView;

/// The free blocks of one stream in one pool.
pub(crate) struct Heap<D: Device> {
    pub(crate) state: Lock<HeapState<D>>,
    pub(crate) counters: Arc<Counters>,
    /// Held by the one request that may make the heap larger; hits do not wait for it.
    growth: Mutex<()>,
    /// What makes the heap elastic; `None` if its segments are the device's own.
    pub(crate) elastic: Option<ElasticState<D>>,
    /// The heap of the same stream with the other source, once the configuration has changed between them.
    partner: OnceLock<Weak<Heap<D>>>,
    pub(crate) stream_state: Arc<StreamState<D>>,
    pub(crate) shared: Arc<DeviceState<D>>,
    /// Place in the allocator's list of heaps.
    pub(crate) number: u32,
    /// The pool it belongs to; `None` for the default one.
    pool: RwLock<Option<Arc<PoolState>>>,
}

/// What a heap's lock guards.
#[derive(Debug)]
pub(crate) struct HeapState<D: Device> {
    pub(crate) blocks: HeapBlocks<Arc<Fence<D>>>,
    pub(crate) policy: Policy,
    /// For every block that is `used`, the streams that use it besides the heap's own.
    uses: HashMap<BlockId, StreamUses<D>>,
    pending: PendingFrees<D>,
    /// For every lane, by number, the last of its points that the heap's own stream was made to wait for.
    waited: HashMap<u64, u64>,
    /// The heap itself, from its first allocation until it is closed and empty: allocations point to the
    /// heap without owning it, and this is what they rely on.
    keepalive: Option<Arc<Heap<D>>>,
    /// Whether the allocator is gone, and only allocations still need the heap.
    closed: bool,
    /// Where requests may have to go instead.
    pub(crate) redirect: Redirect,
    /// What the history needs, while there is one.
    history_state: Option<Box<HeapHistory>>,
    /// Whether nothing out of the ordinary has to be looked after when a block is taken or given: the cache is
    /// on, no block waits, nobody tracks or records, no ages and no oversize blocks are counted, and the heap keeps itself
    /// alive.
    ///
    /// Derived from everything else by [`refresh`](HeapState::refresh); a hit looks at this alone.
    fast_path: bool,
}

impl<D: Device> HeapState<D> {
    /// Takes away the streams that use a block besides the heap's own; `None` if there are none.
    fn take_uses(&mut self, id: BlockId) -> Option<StreamUses<D>> {
        let used = std::mem::take(&mut self.blocks.block_mut(id).used);
        used.then(|| self.uses.remove(&id)).flatten()
    }

    /// Brings `fast_path` up to date.
    fn refresh(&mut self, shared: &DeviceState<D>) {
        self.fast_path = self.keepalive.is_some()
            && !self.closed
            && !self.redirect.any()
            && !self.policy.ages
            && self.history_state.is_none()
            && !self.pending.has_pending_events()
            && shared.settings.caches.load(Relaxed)
            && !shared.callbacks.is_tracked()
            && shared.totals.max_split == u64::MAX;
    }
}

/// Where requests may have to go instead of the heap.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Redirect {
    /// To its partner, whose source the configuration names.
    partner: bool,
    /// To another pool, if a route says so.
    route: bool,
    /// Nowhere: its pool sleeps.
    pub(crate) asleep: bool,
}

impl Redirect {
    const fn any(self) -> bool {
        self.partner || self.route || self.asleep
    }
}

/// The streams that use an allocated block besides the heap's own.
#[derive(Debug)]
pub(crate) struct StreamUses<D: Device> {
    users: Vec<Arc<StreamState<D>>>,
    /// How many of them, the last ones, were recorded while they were captured.
    captured: usize,
    /// Whether the block serves another stream altogether, so that its next use must wait for that one.
    lent: bool,
    /// How often the block is offered to other processes: until none is left it serves nobody else.
    offers: u32,
}

impl<D: Device> Default for StreamUses<D> {
    fn default() -> Self {
        Self { users: Vec::new(), captured: 0, lent: false, offers: 0 }
    }
}

impl<D: Device> StreamUses<D> {
    /// The use of a block that serves `stream_state` instead of the heap's own stream.
    fn lent_to(stream_state: Arc<StreamState<D>>) -> Self {
        Self { users: vec![stream_state], lent: true, ..Self::default() }
    }

    /// The stream that the block serves instead of the heap's own.
    fn borrower(&self) -> Option<StreamRef> {
        let first = self.users.first().filter(|_| self.lent)?;
        Some(first.handle())
    }
}

impl<D: Device> Heap<D> {
    /// A heap for `stream_state`, whose segments are elastic or the device's own.
    pub(crate) fn new(stream_state: Arc<StreamState<D>>, policy: &Policy, number: u32, elastic: bool) -> Self {
        let shared = Arc::clone(stream_state.shared());
        let mut blocks = if elastic { HeapBlocks::elastic() } else { HeapBlocks::default() };
        blocks.pack(shared.settings.tuning().packs);
        let counters = Arc::new(Counters::default());
        shared.peaks.enlist(&counters);
        lock::prepare();
        let heap = Self {
            state: Lock::new(HeapState {
                blocks,
                policy: policy.for_source(elastic),
                uses: HashMap::new(),
                pending: PendingFrees::default(),
                waited: HashMap::new(),
                keepalive: None,
                closed: false,
                redirect: Redirect::default(),
                history_state: None,
                fast_path: false,
            }),
            counters,
            growth: Mutex::new(()),
            elastic: elastic.then(ElasticState::default),
            partner: OnceLock::new(),
            stream_state,
            shared,
            number,
            pool: RwLock::new(None),
        };
        heap.state.lock().history_state =
            heap.shared.history.current().map(|recording| Box::new(heap.notes_for(&recording)));
        heap
    }

    /// The heap's place in the allocator's list.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// The pool it belongs to; `None` for the default one.
    pub(crate) fn pool(&self) -> Option<Arc<PoolState>> {
        self.pool.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives an empty heap to a pool.
    pub(crate) fn set_pool(&self, pool: &Arc<PoolState>) {
        let mut state = self.state.lock();
        state.policy.no_split = pool.splits_never();
        state.redirect.asleep = pool.is_asleep();
        Self::note_pool(&mut state, pool.id);
        state.refresh(&self.shared);
        *self.pool.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(pool));
    }

    /// Splits blocks from now on, or not.
    pub(crate) fn set_no_split(&self, on: bool) {
        self.state.lock().policy.no_split = on;
    }

    /// Lets requests go to the heap's partner where segments are to be of the other kind.
    pub(crate) fn set_elastic(&self, elastic: bool) {
        let mut state = self.state.lock();
        state.redirect.partner = elastic != self.elastic.is_some();
        state.refresh(&self.shared);
    }

    /// Whether unused memory of the heap may be given back for the sake of another, or for nobody's.
    pub(crate) fn gives_back(&self) -> bool {
        self.pool().is_none_or(|pool| pool.is_left())
    }

    /// Lets requests look where they have to be led, or not.
    pub(crate) fn set_routed(&self, routed: bool) {
        let mut state = self.state.lock();
        state.redirect.route = routed;
        state.refresh(&self.shared);
    }

    /// Whether requests may have to be led to another pool.
    pub(crate) fn is_routed(&self) -> bool {
        self.state.lock().redirect.route
    }

    #[inline]
    pub(crate) const fn stream_state(&self) -> &Arc<StreamState<D>> {
        &self.stream_state
    }

    #[inline]
    pub(crate) const fn shared(&self) -> &Arc<DeviceState<D>> {
        &self.shared
    }

    /// Takes the right to make the heap larger.
    pub(crate) fn lock_growth(&self) -> MutexGuard<'_, ()> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether requests go to the heap's partner now.
    pub(crate) fn is_retired(&self) -> bool {
        self.state.lock().redirect.partner
    }

    /// The heap of the same stream with the other source, if there is one.
    pub(crate) fn partner(&self) -> Option<Arc<Self>> {
        self.partner.get()?.upgrade()
    }

    /// Makes two heaps of one stream each other's partner; both keep the first they had.
    pub(crate) fn pair(self: &Arc<Self>, other: &Arc<Self>) {
        let _ = self.partner.set(Arc::downgrade(other));
        let _ = other.partner.set(Arc::downgrade(self));
    }

    /// Changes how blocks are chosen from now on, and whether segments are to be elastic.
    pub(crate) fn set_policy(&self, policy: &Policy, elastic: bool) {
        let pool = self.pool();
        let elastic = elastic && pool.as_ref().is_none_or(|pool| pool.permits_elastic());
        let mut state = self.state.lock();
        state.redirect.partner = elastic != self.elastic.is_some();
        state.policy = policy.for_source(self.elastic.is_some());
        state.policy.no_split = pool.is_some_and(|pool| pool.splits_never());
        let packs = self.shared.settings.tuning().packs;
        state.blocks.pack(packs);
        state.refresh(&self.shared);
    }

    /// Takes notice of something that changed for all heaps.
    pub(crate) fn refresh(&self) {
        self.state.lock().refresh(&self.shared);
    }

    /// How blocks are chosen now.
    pub(crate) fn policy(&self) -> Policy {
        self.state.lock().policy.clone()
    }

    /// Brings the counters of free parts up to date, and the peaks with them.
    #[inline(never)]
    pub(crate) fn flush_stats(&self, state: &mut HeapState<D>) {
        let split = state.blocks.take_split();
        if self.counters.set_split(split.map(|(_, high)| high)) {
            self.shared.peaks.note(&self.counters);
        }
        self.counters.set_split(split.map(|(now, _)| now));
        state.blocks.set_watermark(self.counters.split_watermark());
    }

    /// Tells the heap that its allocator is gone; it ends with its last allocation.
    pub(crate) fn close(self: Arc<Self>) {
        let mut state = self.state.lock();
        state.closed = true;
        state.refresh(&self.shared);
        let last = self.let_go(&mut state);
        drop(state);
        drop(last);
    }

    /// Whether an action is told to anyone.
    #[inline]
    fn is_told(&self, action: TraceAction) -> bool {
        self.shared.callbacks.is_tracked() || tracing::tells_of(action)
    }

    /// Tells the trackers, with the heap not locked.
    pub(crate) fn tell(&self, action: TraceAction, address: u64, bytes: u64) -> CallbackOutcome {
        if self.is_told(action) { self.tell_trackers(action, address, bytes) } else { CallbackOutcome::default() }
    }

    /// Tells the trackers of an allocation, after what `before` told them.
    ///
    /// If a tracker panicked, the caller gets no allocation, so the block becomes free again.
    #[cold]
    pub(crate) fn tell_alloc(&self, allocated: &Allocated, requested: u64, before: CallbackOutcome) {
        let outcome = before.and(self.tell(TraceAction::Alloc, allocated.address, requested));
        if outcome.is_panic() {
            let guards = self.guards_of(allocated, &self.stream_state);
            self.put_back(*allocated, guards);
        }
    }

    #[cold]
    pub(crate) fn tell_trackers(&self, action: TraceAction, address: u64, bytes: u64) -> CallbackOutcome {
        let event = TraceEvent {
            action,
            address,
            bytes,
            stream: self.stream_state.handle(),
            pool: self.pool().map_or(PoolId::DEFAULT, |pool| pool.id),
        };
        if tracing::tells_of(action) && action != TraceAction::OutOfMemory {
            tracing::happened(&event);
        }
        self.shared.callbacks.event(&event)
    }
}

/// The lock of a heap, held.
pub(crate) type HeapGuard<'a, D> = lock::LockGuard<'a, HeapState<D>>;
