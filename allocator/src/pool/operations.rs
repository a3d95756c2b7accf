//! The operations of an allocator on its pools.

use std::convert::identity;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cachette_hal::{self as hal, Device, StreamRef};

use crate::allocation::Allocation;
use crate::allocator::Allocator;
use crate::allocator::allocator_state::AllocatorState;
use crate::error::{Error, NO_HEAP, sum_all};
use crate::fence::Fence;
use crate::heap::Heap;
use crate::label::Label;
use crate::observe::history::Level;
use crate::pool::PoolId;
use crate::pool::pool_state::{Launches, PoolState};
use crate::pool::route;
use crate::stream::Stream;
use crate::stream_state::StreamState;

/// How many other pools without users the release of a pool examines: memory of theirs may have been freed since.
const EXAMINED: usize = 2;

impl<D: Device> Allocator<D> {
    /// Allocates from the pool that this thread entered last, if it serves the stream.
    #[inline(never)]
    pub(crate) fn allocate_inside(&self, bytes: u64, stream: &Stream<D>) -> Result<Allocation<D>, Error> {
        let heap = self.inner().heap_inside(stream.handle(), &stream.stream_state)?;
        self.allocate_fast(bytes, heap.unwrap_or(&stream.heap), Label::OWNED, identity)
    }
}

impl<D: Device> AllocatorState<D> {
    /// The heap of the pool that this thread entered last, if that pool serves the stream.
    #[inline]
    pub(crate) fn heap_inside(
        &self,
        stream: StreamRef,
        stream_state: &Arc<StreamState<D>>,
    ) -> Result<Option<&Arc<Heap<D>>>, Error> {
        if let Some(known) = route::last(self.identity, stream) {
            // SAFETY: `remember` stored it for this allocator, by its unique number. It keeps its heaps to its end.
            return Ok(Some(unsafe { known.cast::<Arc<Heap<D>>>().as_ref() }));
        }
        self.find_heap_inside(stream, stream_state)
    }

    #[cold]
    fn find_heap_inside(
        &self,
        stream: StreamRef,
        stream_state: &Arc<StreamState<D>>,
    ) -> Result<Option<&Arc<Heap<D>>>, Error> {
        let Some(pool) = route::pool_inside(self.identity, stream) else { return Ok(None) };
        let heap = self.heap_of_stream_state(&pool, stream_state)?;
        route::remember(self.identity, stream, NonNull::from(heap).cast());
        Ok(Some(heap))
    }

    /// Returns the heap of a stream state in a pool. Creates it if there is none yet.
    pub(crate) fn heap_of_stream_state(
        &self,
        pool: &Arc<PoolState>,
        stream_state: &Arc<StreamState<D>>,
    ) -> Result<&Arc<Heap<D>>, Error> {
        let make = || {
            let _turn = self.config_turn.lock();
            let elastic = self.shared.is_elastic() && pool.permits_elastic();
            let heap = self.idle_heap(stream_state, elastic).or_else(|| self.add_heap(stream_state, elastic, None))?;
            heap.set_pool(pool);
            Some(heap.number)
        };
        let mut number = pool.streams.get(stream_state.handle.raw());
        if number.is_none() {
            self.shared.origin.check()?;
            number = pool.streams.get_or_add(stream_state.handle.raw(), make);
        }
        Ok(number.and_then(|number| self.heaps.get(number)).ok_or(NO_HEAP)?)
    }

    /// Finds an empty heap of the same stream state and kind that an earlier pool left behind.
    fn idle_heap(&self, stream_state: &Arc<StreamState<D>>, elastic: bool) -> Option<&Arc<Heap<D>>> {
        let fits = |number| self.heaps.get(number).is_some_and(|heap| heap.is_elastic() == elastic);
        self.heaps.get(self.pools.idle_heap(stream_state.number, fits)?)
    }

    /// The heaps of a pool, in order of number.
    pub(crate) fn heaps_of(&self, pool: &PoolState) -> Vec<Arc<Heap<D>>> {
        pool.heaps.lock().iter().filter_map(|number| self.heaps.get(*number).map(Arc::clone)).collect()
    }

    /// Releases the unused memory of a pool. Returns the bytes that became free.
    pub(crate) fn empty_pool(&self, state: &PoolState) -> Result<u64, Error> {
        self.forget_freed_asleep(state);
        let _gathered = self.shared.history.gather(Level::All);
        let _relaxed = self.shared.relax_capture();
        if !state.may_release() || !self.settle_launches(state, true)? {
            return Ok(0);
        }
        Ok(sum_all(self.heaps_of(state).iter().map(|heap| heap.empty()))?)
    }

    /// Removes a user of a pool. Releases the pool's memory after the last user.
    pub(super) fn release_pool(&self, state: &PoolState) {
        if !self.pools.release(state) {
            return;
        }
        state.use_on_oom.store(false, Relaxed);
        // A destructor cannot return a failure. The next call that empties the cache retries.
        let _ = self.empty_pool(state);
        self.forget_pools(state.id, EXAMINED);
    }

    /// Records that a graph with memory of a pool runs in the stream of a stream state.
    pub(crate) fn note_launch(&self, state: &PoolState, stream_state: &Arc<StreamState<D>>) {
        /// Relaxed: only the numbers must differ.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut launches = self.launches.lock();
        let none = Launches { last: 0, users: Vec::new(), ends: Vec::new() };
        let of_pool = launches.entry(state.id).or_insert(none);
        of_pool.last = NEXT.fetch_add(1, Relaxed);
        of_pool.ends.clear();
        if !of_pool.users.iter().any(|known| Arc::ptr_eq(known, stream_state)) {
            of_pool.users.push(Arc::clone(stream_state));
        }
        state.running.store(true, Relaxed);
    }

    /// Waits for the graphs of a pool. Returns `false` if a stream is captured, or more graphs were launched meanwhile.
    ///
    /// Without `waits` it only polls. Callers poll only pools without users, which have no new launches. So the next
    /// poll checks the same fences, and work queued after the launches causes no delay.
    pub(crate) fn settle_launches(&self, state: &PoolState, waits: bool) -> hal::Result<bool> {
        let known = |known: &Launches<D>| (known.last, known.users.clone(), known.ends.clone());
        let Some((last, users, mut ends)) = self.launches.lock().get(&state.id).map(known) else { return Ok(true) };
        for stream_state in &users {
            if stream_state.ask_capturing()? {
                return Ok(false);
            }
        }
        if waits || ends.is_empty() {
            let marked = users.iter().map(|stream_state| Fence::record(stream_state).map(Arc::new));
            ends = marked.collect::<hal::Result<_>>()?;
        }
        if !waits
            && let Some(known) = self.launches.lock().get_mut(&state.id)
            && known.last == last
        {
            known.ends.clone_from(&ends);
        }
        for end in &ends {
            if waits {
                end.wait()?;
            } else if !end.passes_soon()? {
                return Ok(false);
            }
        }
        let mut launches = self.launches.lock();
        let over = launches.get(&state.id).is_none_or(|launches| launches.last == last);
        if over {
            launches.remove(&state.id);
            state.running.store(false, Relaxed);
        }
        Ok(over)
    }

    /// Waits for the graphs of pools without users, or polls with `never_block`. A failure does not stop the others.
    pub(crate) fn wait_for_abandoned_graphs(&self) -> hal::Result<()> {
        let waits = !self.shared.settings.never_block.load(Relaxed);
        let mut launched: Vec<_> = self.launches.lock().keys().copied().collect();
        launched.sort_unstable();
        let left = launched.into_iter().filter_map(|id| self.pools.released_as(id));
        left.map(|state| self.settle_launches(&state, waits).map(drop)).fold(Ok(()), Result::and)
    }

    /// Removes a pool without users and live memory, after a wait for chunks that its streams still use.
    pub(super) fn remove_if_dead(&self, id: PoolId) {
        let Some(state) = self.pools.released_as(id) else { return };
        if !self.shared.settings.never_block.load(Relaxed) {
            for heap in self.heaps_of(&state) {
                if !heap.stream_state.is_capturing() {
                    // After a failure the pool stays.
                    let _ = heap.wait_and_unmap();
                }
            }
        }
        self.forget_pools(id, 0);
    }

    /// Removes the pool `id`, and up to `others` more pools, if they have no users and no memory.
    pub(crate) fn forget_pools(&self, id: PoolId, others: usize) {
        self.pools.forget(id, others, |state| {
            let heaps = self.heaps_of(state);
            // The addresses of a pool that cannot wake are not all reserved, so no other pool can use its heaps.
            if state.is_asleep() || !heaps.iter().all(|heap| heap.is_empty()) {
                return None;
            }
            let forgotten = Arc::new(PoolState::forgotten(state.id));
            for heap in &heaps {
                heap.set_pool(&forgotten);
            }
            Some(heaps.iter().map(|heap| (heap.stream_state.number, heap.number)).collect())
        });
    }

    /// Updates the routing flag of every heap of the default pool.
    pub(super) fn refresh_routes(&self) {
        self.routes.tell(|routed| {
            self.shared.routed.store(routed, Relaxed);
            for heap in self.heaps.all() {
                heap.set_routed(routed);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use cachette_hal::{Backend, Ordinal};
    use cachette_hal_host::{HostBackend, HostConfig};

    use crate::{Allocator, PoolId};

    fn allocator() -> Allocator {
        let backend = HostBackend::new(HostConfig::default().phantom(true)).unwrap();
        Allocator::new(backend.open(Ordinal(0)).unwrap())
    }

    #[test]
    fn p6_pools_that_come_after_others_use_their_heaps_again() {
        let allocator = allocator();
        let streams = [(); 3].map(|()| allocator.create_stream().unwrap());
        let mut counts = Vec::new();
        for _ in 0..1000 {
            let pool = allocator.create_pool();
            for stream in &streams {
                drop(pool.allocate(512, stream).unwrap());
            }
            counts.push(allocator.inner().heaps.all().len());
        }
        assert!(counts.iter().all(|count| *count == 6), "{counts:?}");
    }

    #[test]
    fn p6_an_address_leads_to_its_pool_and_a_pool_to_its_addresses() {
        let allocator = allocator();
        let stream = allocator.create_stream().unwrap();
        let pool = allocator.create_pool();
        let (own, other) = (pool.allocate(512, &stream).unwrap(), allocator.allocate(512, &stream).unwrap());
        let address = own.address();
        assert_eq!(allocator.pool_at(address + 1), Some(pool.id()));
        assert_eq!(allocator.pool_at(other.address()), Some(PoolId::DEFAULT));
        assert_eq!(allocator.pool_at(0x1000), None);
        assert_eq!(pool.live_allocations(), [address]);
        drop(own);
        assert!(pool.live_allocations().is_empty());
        assert_eq!(allocator.pool_at(address), Some(pool.id()), "its memory is still the pool's");
    }

    #[test]
    fn p6_a_pool_uses_only_idle_heaps_of_its_kind_of_segments() {
        let allocator = allocator();
        let stream = allocator.create_stream().unwrap();
        for round in 0..20 {
            let text = ["expandable_segments:False", ""][round % 2];
            allocator.set_config(&text.parse().unwrap());
            let pool = allocator.create_pool();
            let memory = pool.allocate(3 << 20, &stream).unwrap();
            assert_eq!(pool.stats().segments, [1, 0][round % 2]);
            drop((memory, pool));
            allocator.empty_cache().unwrap();
        }
        // The stream's own heap, and one of each kind.
        assert_eq!(allocator.inner().heaps.all().len(), 3);
    }
}
