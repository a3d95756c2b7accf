//! A heap: the blocks of one stream in one pool, and their state under one lock.

pub(crate) mod events;
pub(crate) mod fast_path;
pub(crate) mod graph_reuse;
pub(crate) mod history;
pub(crate) mod pending;
pub(crate) mod segments;
pub(crate) mod slow_path;
pub(crate) mod view;

pub(crate) use fast_path::{Allocated, FastGuard, Freed, HeapGuard, HeapLock, Request};
pub(crate) use segments::NewSegment;
pub(crate) use view::HeapCopy;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use cachette_hal::{Device, StreamRef};

use crate::blocks::{BlockId, HeapBlocks};
use crate::device_state::DeviceState;
use crate::elastic::map::ElasticState;
use crate::fence::Fence;
use crate::heap::fast_path::FastPath;
use crate::heap::history::{HeapHistory, Stacks};
use crate::heap::pending::PendingFrees;
use crate::heap_policy::HeapPolicy;
use crate::observe::callbacks::{CallbackOutcome, TraceAction, TraceEvent};
use crate::pool::PoolId;
use crate::pool::pool_state::PoolState;
use crate::stats::Counters;
use crate::stream_state::StreamState;
use crate::sync::{Mutex, RwLock, lock};

/// The blocks of one stream in one pool.
pub(crate) struct Heap<D: Device> {
    pub(crate) state: HeapLock<D>,
    pub(crate) counters: Arc<Counters>,
    /// Held by the one request that may add memory to the heap. Hits do not wait for it.
    pub(crate) growth: Mutex<()>,
    /// What an elastic heap has besides its blocks; empty if the segments come from the device.
    pub(super) elastic_state: ElasticState<D>,
    /// Whether the segments are elastic; changed under `growth` and the lock of the state, without any memory.
    is_elastic: AtomicBool,
    /// For an elastic heap, the number of the heap with direct segments for what the driver cannot map.
    pub(crate) direct: OnceLock<u32>,
    pub(crate) stream_state: Arc<StreamState<D>>,
    pub(crate) shared: Arc<DeviceState<D>>,
    /// Position in the allocator's list of heaps.
    pub(crate) number: u32,
    /// The stream that the table of streams has this heap for, if it does.
    pub(crate) listed: Option<StreamRef>,
    /// The pool of the heap; `None` for the default pool.
    pool: RwLock<Option<Arc<PoolState>>>,
}

impl<D: Device> Heap<D> {
    /// Creates a heap for `stream_state`, with elastic segments or segments from the device.
    pub(crate) fn new(
        stream_state: Arc<StreamState<D>>,
        policy: &HeapPolicy,
        number: u32,
        elastic: bool,
        listed: Option<StreamRef>,
    ) -> Self {
        let shared = Arc::clone(&stream_state.shared);
        let blocks = if elastic { HeapBlocks::elastic() } else { HeapBlocks::default() };
        let counters = Arc::new(Counters::of(number));
        shared.peaks.enlist(&counters);
        lock::prepare();
        let state = HeapState {
            blocks,
            policy: policy.for_source(elastic),
            uses: HashMap::new(),
            pending: PendingFrees::default(),
            waited: HashMap::new(),
            keepalive: None,
            closed: false,
            routed: false,
            asleep: false,
            parked: None,
            history_state: None,
            stacks: Box::default(),
            shared: Arc::clone(&shared),
        };
        let heap = Self {
            state: HeapLock::new(state),
            counters,
            growth: Mutex::new(()),
            elastic_state: ElasticState::default(),
            is_elastic: elastic.into(),
            direct: OnceLock::new(),
            stream_state,
            shared,
            number,
            listed,
            pool: RwLock::default(),
        };
        heap.state.lock().history_state =
            heap.shared.history.current().map(|recording| Box::new(heap.notes_for(&recording)));
        heap
    }

    /// Whether the segments are elastic, and not from the device.
    pub(crate) fn is_elastic(&self) -> bool {
        self.is_elastic.load(Relaxed)
    }

    /// The elastic state; `None` if the segments come from the device.
    pub(crate) fn elastic(&self) -> Option<&ElasticState<D>> {
        self.is_elastic().then_some(&self.elastic_state)
    }

    pub(crate) fn pool(&self) -> Option<Arc<PoolState>> {
        self.pool.read().clone()
    }

    pub(crate) fn pool_id(&self) -> PoolId {
        self.pool.read().as_ref().map_or(PoolId::DEFAULT, |pool| pool.id)
    }

    /// Whether the memory behind the heap's addresses never changes while its pool has users.
    pub(crate) fn is_registered(&self) -> bool {
        self.pool.read().as_ref().is_some_and(|pool| pool.options.registered)
    }

    /// Assigns an empty heap to a pool.
    pub(crate) fn set_pool(&self, pool: &Arc<PoolState>) {
        let mut state = self.state.lock();
        if let Some(before) = self.pool.write().replace(Arc::clone(pool)) {
            before.heaps.lock().remove(&self.number);
        }
        pool.heaps.lock().insert(self.number);
        state.policy.no_split = !self.is_elastic() && pool.no_split.load(Relaxed);
        state.policy.driver_pool = false;
        // A thread that puts the pool to sleep marks the pool first, and then its heaps. So one of both marks this heap.
        state.asleep = pool.is_asleep();
        state.routed = false;
        Self::note_pool(&mut state, pool.id);
    }

    /// Returns whether unused memory may be released for another request, or when a caller empties the cache.
    pub(crate) fn may_release(&self) -> bool {
        self.pool().is_none_or(|pool| pool.is_abandoned())
    }

    /// Returns whether no graph may use the unused memory of the heap. Callers hold the lock of its state.
    pub(crate) fn permits_release(&self) -> bool {
        self.pool().is_none_or(|pool| pool.permits_release())
    }

    /// Sets whether requests to the default pool must check for a route. Those to other pools never do.
    pub(crate) fn set_routed(&self, routed: bool) {
        let mut state = self.state.lock();
        // Under the lock, since the heap may get a pool at the same moment.
        state.routed = routed && self.pool.read().is_none();
    }

    pub(crate) fn set_policy(&self, policy: &HeapPolicy) {
        let pool = self.pool();
        self.set_policy_locked(&mut self.state.lock(), policy, pool.as_deref());
    }

    fn set_policy_locked(&self, state: &mut HeapState<D>, policy: &HeapPolicy, pool: Option<&PoolState>) {
        let driver_pool = state.policy.driver_pool;
        state.policy = HeapPolicy { driver_pool, ..policy.for_source(self.is_elastic()) };
        state.policy.no_split = !self.is_elastic() && pool.is_some_and(|pool| pool.no_split.load(Relaxed));
        // The next search may choose another block than the last-freed one.
        state.blocks.coalesce();
    }

    /// Gives a heap without memory the kind of segments that the configuration and the pool ask for now.
    #[cold]
    pub(crate) fn follow_setting(&self) {
        if !self.is_empty() {
            return;
        }
        let pool = self.pool();
        let wanted = || self.shared.is_elastic() && pool.as_ref().is_none_or(|pool| pool.permits_elastic());
        if wanted() == self.is_elastic() {
            return;
        }
        let _alone = self.growth.lock();
        if !self.close_all_addresses() {
            return;
        }
        self.release_closed_addresses();
        let mut state = self.state.lock();
        if state.blocks.segments().next().is_some() {
            return;
        }
        // Under the lock: a thread that changes the configuration sets the policy afterwards, or before this one reads.
        let elastic = wanted();
        state.blocks.set_elastic(elastic);
        self.is_elastic.store(elastic, Relaxed);
        self.set_policy_locked(&mut state, &HeapPolicy::of(&self.shared.settings.config()), pool.as_deref());
    }

    /// Closes all addresses of a heap without memory. Returns `false` if something has memory, or is mapped still.
    fn close_all_addresses(&self) -> bool {
        let mut state = self.state.lock();
        // Chunks that a thread moves or unmaps are in no list.
        let settled = self.elastic_state.moves.try_write();
        let empty = settled.is_some() && !state.asleep && self.is_empty() && !self.has_memory();
        if empty {
            state.blocks.close_unmapped(|_| true);
        }
        empty
    }

    pub(crate) fn policy(&self) -> HeapPolicy {
        self.state.lock().policy.clone()
    }

    /// Updates the counters of free parts of segments, and their peaks.
    #[inline(never)]
    pub(crate) fn flush_stats(&self, blocks: &mut HeapBlocks<Arc<Fence<D>>>) {
        let split = blocks.take_split();
        if self.counters.set_split(split.map(|(_, high)| high)) {
            self.shared.peaks.note(&self.counters);
        }
        self.counters.set_split(split.map(|(now, _)| now));
        blocks.watermark = self.counters.split_watermark();
    }

    /// Parks the heap: until its state is locked again, the peak tracker does not look at its counters.
    pub(crate) fn park(&self) {
        let mut state = self.state.lock_parked();
        if state.parked.is_none() && !state.closed {
            self.shared.peaks.park(&self.counters);
            state.parked = Some(Arc::clone(&self.counters));
        }
    }

    /// Records that the allocator is dropped. The heap ends with its last allocation.
    pub(crate) fn close(self: Arc<Self>) {
        let mut state = self.state.lock();
        state.closed = true;
        let last = self.let_go(&mut state);
        drop(state);
        drop(last);
    }

    /// Notifies the sinks. The caller does not hold the heap's lock.
    pub(crate) fn tell(&self, action: TraceAction, address: u64, bytes: u64) -> CallbackOutcome {
        if !self.shared.callbacks.wants(action) {
            return CallbackOutcome::default();
        }
        self.shared.callbacks.event(&TraceEvent {
            action,
            address,
            bytes,
            stream: self.stream_state.handle,
            pool: self.pool_id(),
        })
    }

    /// Notifies the sinks of an allocation, after the notification whose outcome is `before`.
    ///
    /// If a sink panics, the caller gets no allocation, so the block is freed.
    #[cold]
    pub(crate) fn tell_alloc(&self, allocated: &Allocated, requested: u64, before: CallbackOutcome) {
        let outcome = before.and(self.tell(TraceAction::Alloc, allocated.address, requested));
        self.put_back_after_panic(allocated, &outcome);
    }

    /// Frees a block if a sink panicked when it was notified of the allocation.
    pub(crate) fn put_back_after_panic(&self, allocated: &Allocated, outcome: &CallbackOutcome) {
        if outcome.is_panic() {
            self.put_back(*allocated, self.guards_of(allocated, &self.stream_state));
        }
    }
}

/// The state under a heap's lock.
pub(crate) struct HeapState<D: Device> {
    pub(crate) blocks: HeapBlocks<Arc<Fence<D>>>,
    pub(crate) policy: HeapPolicy,
    /// For every block that other streams use, the streams besides the heap's own.
    pub(crate) uses: HashMap<BlockId, StreamUses<D>>,
    pub(crate) pending: PendingFrees<D>,
    /// For every stream state, by number, its last fence that the heap's own stream waits for.
    pub(super) waited: HashMap<u64, u64>,
    /// The heap itself, from its first allocation until it is closed and empty: allocations do not own it.
    pub(super) keepalive: Option<Arc<Heap<D>>>,
    /// Whether the allocator is dropped, and only allocations still need the heap.
    pub(super) closed: bool,
    /// Whether requests may be redirected to another pool, since a route exists.
    pub(crate) routed: bool,
    /// Whether requests fail, since the pool sleeps.
    pub(crate) asleep: bool,
    /// The counters of the heap while the peak tracker has it parked.
    pub(super) parked: Option<Arc<Counters>>,
    /// The history of this heap, while one is recorded.
    pub(crate) history_state: Option<Box<HeapHistory>>,
    /// The stacks that a history has recorded. They stay when the history stops.
    pub(crate) stacks: Box<Stacks>,
    shared: Arc<DeviceState<D>>,
}

impl<D: Device> HeapState<D> {
    /// Returns what an allocation or a free may do without work beyond the block itself.
    ///
    /// The last-freed block may be used if the cache is on and serves the requests, and no request is redirected. No tracker or
    /// history is active, and neither ages nor oversize blocks are counted. The heap also keeps itself alive.
    pub(super) fn fast_path(&self) -> FastPath {
        let last_freed = self.history_state.is_none()
            && self.keepalive.is_some()
            && !self.closed
            && self.parked.is_none()
            && !self.routed
            && !self.asleep
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
        if !std::mem::take(&mut self.blocks.blocks[id].slow_free) {
            return None;
        }
        if self.history_state.is_none() {
            self.stacks.set(id, 0);
        }
        self.uses.remove(&id).filter(|uses| !uses.users.is_empty() || uses.exports > 0)
    }
}

/// The streams that use an allocated block besides the heap's own.
pub(crate) struct StreamUses<D: Device> {
    pub(crate) users: Vec<Arc<StreamState<D>>>,
    /// How many of them, counted from the end, were recorded during a capture.
    pub(crate) captured: usize,
    /// Whether the next use of the block waits on the device for these streams, so that it is free at once.
    pub(crate) guarded: bool,
    /// How many exports to other processes are open. The block is not reused before the last one ends.
    pub(crate) exports: u32,
    /// Whether the block is memory of a pool and serves a request of the default pool.
    pub(crate) lent: bool,
}

impl<D: Device> Default for StreamUses<D> {
    fn default() -> Self {
        Self { users: Vec::new(), captured: 0, guarded: false, exports: 0, lent: false }
    }
}

/// The number of heaps in `first`. The first part has the same length, and each further part twice the previous length.
const FIRST: usize = 32;
const PARTS: usize = 24;

/// The heaps of one allocator, of all its pools. Heaps are added and never removed.
pub(crate) struct Heaps<D: Device> {
    /// The first heaps, without an indirection. Most programs have no more.
    first: [OnceLock<Arc<Heap<D>>>; FIRST],
    /// The rest, in parts that are created on demand.
    parts: [OnceLock<HeapPage<D>>; PARTS],
    /// The number of heaps. The lock is held while one is added.
    count: Mutex<u32>,
    /// The number of the first heap of every stream.
    streams: Mutex<Vec<u32>>,
}

type HeapPage<D> = Box<[OnceLock<Arc<Heap<D>>>]>;

impl<D: Device> Default for Heaps<D> {
    fn default() -> Self {
        Self {
            first: [const { OnceLock::new() }; FIRST],
            parts: [const { OnceLock::new() }; PARTS],
            count: Mutex::new(0),
            streams: Mutex::default(),
        }
    }
}

impl<D: Device> Heaps<D> {
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&Arc<Heap<D>>> {
        if let Some(slot) = self.first.get(number as usize) {
            return slot.get();
        }
        let (part, place) = place_of(number);
        self.parts.get(part)?.get()?.get(place)?.get()
    }

    /// Adds the heap that `make` creates. Returns `None` without room, which takes more streams than any driver has.
    pub(crate) fn add(&self, make: impl FnOnce(u32) -> Heap<D>) -> Option<&Arc<Heap<D>>> {
        let mut count = self.count.lock();
        let number = *count;
        let heap = self.slot(number)?.get_or_init(|| Arc::new(make(number)));
        *count += 1;
        drop(count);
        let mut of_stream = heap.stream_state.heaps.lock();
        if of_stream.is_empty() {
            self.streams.lock().push(number);
        }
        of_stream.push(number);
        Some(heap)
    }

    /// Every stream, without a walk of the heaps.
    pub(crate) fn streams(&self) -> Vec<Arc<StreamState<D>>> {
        let numbers = self.streams.lock();
        numbers.iter().filter_map(|number| self.get(*number)).map(|heap| Arc::clone(&heap.stream_state)).collect()
    }

    /// The slot of a heap, created on demand.
    fn slot(&self, number: u32) -> Option<&OnceLock<Arc<Heap<D>>>> {
        if let Some(slot) = self.first.get(number as usize) {
            return Some(slot);
        }
        let (part, place) = place_of(number);
        let slots = self.parts.get(part)?.get_or_init(|| (0..FIRST << part).map(|_| OnceLock::new()).collect());
        slots.get(place)
    }

    /// Every heap, in order of creation.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Heap<D>>> {
        let count = *self.count.lock();
        (0..count).filter_map(|number| self.get(number))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Heap<D>>> {
        self.iter().cloned().collect()
    }
}

/// The part, and the index in it, of a heap after the first ones.
const fn place_of(number: u32) -> (usize, usize) {
    let part = (number as usize / FIRST).ilog2() as usize;
    (part, number as usize - (FIRST << part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_places_one_after_the_other() {
        assert_eq!(place_of(32), (0, 0));
        assert_eq!(place_of(63), (0, 31));
        assert_eq!(place_of(64), (1, 0));
        assert_eq!(place_of(127), (1, 63));
        assert_eq!(place_of(128), (2, 0));
    }
}
