//! The operations of an allocator on its pools.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use cachette_hal::owned::RelaxedCapture;
use cachette_hal::{self as hal, Device, StreamRef};

use crate::allocation::Allocation;
use crate::allocator::Allocator;
use crate::error::{Error, NO_HEAP, sum_all};
use crate::fence::Fence;
use crate::heap::Heap;
use crate::observe::history::Level;
use crate::policy::Policy;
use crate::pool::route::{self, Filter};
use crate::pool::state::PoolState;
use crate::pool::{PoolId, PoolStats};
use crate::state::AllocatorState;
use crate::stats::{Counted, Row};
use crate::stream::Stream;
use crate::stream_state::StreamState;

impl<D: Device> Allocator<D> {
    /// Allocates from the pool that this thread entered last, if it serves the stream.
    #[inline(never)]
    pub(crate) fn allocate_inside(&self, bytes: u64, stream: &Stream<D>) -> Result<Allocation<D>, Error> {
        let heap = self.inner().heap_inside(stream.handle(), || Ok(&stream.stream_state))?;
        self.allocate_from(bytes, heap.unwrap_or(&stream.heap))
    }
}

impl<D: Device> AllocatorState<D> {
    /// A number that no other allocator ever has: a thread may have forgotten to leave a pool of one that is gone.
    pub(crate) const fn identity(&self) -> u64 {
        self.identity
    }

    /// The heap of the pool that this thread entered last, if that pool serves the stream.
    ///
    /// `stream_state` looks up the state of the stream.
    #[inline]
    pub(crate) fn heap_inside<'a>(
        &'a self,
        stream: StreamRef,
        stream_state: impl FnOnce() -> Result<&'a Arc<StreamState<D>>, Error>,
    ) -> Result<Option<&'a Arc<Heap<D>>>, Error> {
        if let Some(known) = route::last(self.identity(), stream) {
            // SAFETY: it was remembered below for this very allocator, whose number no other ever has, and an
            // allocator keeps its heaps as long as it lives.
            return Ok(Some(unsafe { known.cast::<Arc<Heap<D>>>().as_ref() }));
        }
        self.find_heap_inside(stream, stream_state()?)
    }

    #[cold]
    fn find_heap_inside(
        &self,
        stream: StreamRef,
        stream_state: &Arc<StreamState<D>>,
    ) -> Result<Option<&Arc<Heap<D>>>, Error> {
        let Some(pool) = route::pool_inside(self.identity(), stream) else {
            return Ok(None);
        };
        let heap = self.heap_of_stream_state(&pool, stream_state)?;
        route::remember(self.identity(), stream, NonNull::from(heap).cast());
        Ok(Some(heap))
    }

    /// The heap of a stream in a pool.
    pub(super) fn heap_in(&self, pool: &Arc<PoolState>, stream: &Stream<D>) -> Result<&Arc<Heap<D>>, Error> {
        if !Arc::ptr_eq(stream.heap.shared(), &self.shared) {
            return Err(Error::ForeignStream);
        }
        self.heap_of_stream_state(pool, &stream.stream_state)
    }

    /// The heap of a stream state in a pool, made if there is none yet.
    pub(crate) fn heap_of_stream_state(
        &self,
        pool: &Arc<PoolState>,
        stream_state: &Arc<StreamState<D>>,
    ) -> Result<&Arc<Heap<D>>, Error> {
        let make = || {
            let elastic = self.is_elastic() && pool.permits_elastic();
            let heap = self.idle_heap(stream_state, elastic).or_else(|| {
                let policy = Policy::of(&self.shared.settings.config());
                let stream_state = Arc::clone(stream_state);
                self.heaps.add(|number| Heap::new(stream_state, &policy, number, elastic))
            })?;
            heap.set_pool(pool);
            heap.set_elastic(elastic);
            if let Some(partner) = heap.partner() {
                partner.set_pool(pool);
                partner.set_elastic(elastic);
            }
            Some(heap.number())
        };
        let mut number = pool.streams.get(stream_state.handle());
        if number.is_none() {
            self.shared.origin.check()?;
            number = pool.streams.get_or_add(stream_state.handle(), make);
        }
        let heap = number.and_then(|number| self.heaps.get(number));
        Ok(heap.ok_or(NO_HEAP)?)
    }

    /// An empty heap of the same stream state and kind that an earlier pool left.
    fn idle_heap(&self, stream_state: &Arc<StreamState<D>>, elastic: bool) -> Option<&Arc<Heap<D>>> {
        let is_such = |heap: &Heap<D>| heap.elastic().is_some() == elastic;
        let fits = |number| {
            let heap = self.heaps.get(number);
            heap.is_some_and(|heap| {
                Arc::ptr_eq(heap.stream_state(), stream_state) && (is_such(heap) || heap.partner().is_some())
            })
        };
        let heap = self.heaps.get(self.pools.idle_heap(fits)?)?;
        if is_such(heap) {
            return Some(heap);
        }
        self.heaps.get(heap.partner()?.number())
    }

    /// The heaps of a pool, those with the other source among them.
    pub(crate) fn heaps_of(&self, id: PoolId) -> Vec<Arc<Heap<D>>> {
        let mut heaps = self.heaps.all();
        heaps.retain(|heap| heap.pool().is_some_and(|pool| pool.id == id));
        heaps
    }

    /// Gives the unused memory of a pool back; the bytes that came free.
    pub(super) fn empty_pool(&self, core: &PoolState) -> Result<u64, Error> {
        self.forget_freed_asleep(core);
        let _gathered = self.shared.history.gather(Level::All);
        // A capture may be under way, which must not be broken.
        let _relaxed = RelaxedCapture::enter(&self.shared.device).ok();
        if !core.gives_back() || !self.wait_for_launches(core)? {
            return Ok(0);
        }
        let heaps = self.heaps_of(core.id);
        Ok(sum_all(heaps.iter().map(|heap| heap.empty()))?)
    }

    /// Takes a user of a pool away, and gives its memory back after the last.
    pub(super) fn release_pool(&self, core: &PoolState) {
        if !self.pools.release(core) {
            return;
        }
        core.set_use_on_oom(false);
        if let Some(source) = &core.source {
            source.released(self.shared.device.info().ordinal, core.id.pair());
        }
        // A destructor cannot return a failure. The next call that empties the cache tries again.
        let _ = self.empty_pool(core);
        self.forget_pools();
    }

    /// Records that a graph with memory of a pool runs in the stream of a stream state.
    pub(super) fn note_launch(&self, core: &PoolState, stream_state: &Arc<StreamState<D>>) {
        let mut launches = self.launches.lock().unwrap_or_else(PoisonError::into_inner);
        let of_pool = launches.entry(core.id).or_default();
        of_pool.count += 1;
        of_pool.ends.clear();
        if !of_pool.users.iter().any(|known| Arc::ptr_eq(known, stream_state)) {
            of_pool.users.push(Arc::clone(stream_state));
        }
        core.set_running(true);
    }

    /// Records that graphs with memory of a pool may run in any stream.
    pub(super) fn mark_external_graph_use(&self, core: &PoolState) {
        for heap in self.heaps.all() {
            self.note_launch(core, heap.stream_state());
        }
    }

    /// Waits until no graph with memory of a pool runs any more. `false` if it cannot wait now: a stream of a launch is
    /// captured, or more graphs are launched meanwhile.
    pub(crate) fn wait_for_launches(&self, core: &PoolState) -> hal::Result<bool> {
        self.settle_launches(core, true)
    }

    /// The same, but without `waits` it only polls. Callers poll only pools without users, which no graph uses anew. So
    /// the next poll checks the same points, and work that was queued after the launches delays nothing.
    fn settle_launches(&self, core: &PoolState, waits: bool) -> hal::Result<bool> {
        let locked = || self.launches.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((count, users, mut ends)) =
            locked().get(&core.id).map(|known| (known.count, known.users.clone(), known.ends.clone()))
        else {
            return Ok(true);
        };
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
            && let Some(known) = locked().get_mut(&core.id)
            && known.count == count
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
        let mut launches = locked();
        let over = launches.get(&core.id).is_none_or(|launches| launches.count == count);
        if over {
            launches.remove(&core.id);
            core.set_running(false);
        }
        Ok(over)
    }

    /// Waits for the graphs of pools that have no user any more, as far as that can be. Where the configuration forbids
    /// to wait, it looks whether they have ended.
    pub(crate) fn wait_for_left_graphs(&self) -> hal::Result<()> {
        let waits = !self.shared.settings.never_block.load(Relaxed);
        for core in self.pools.released() {
            self.settle_launches(&core, waits)?;
        }
        Ok(())
    }

    /// Forgets a pool that has no user and in which nothing lives. Chunks that its streams are not past yet are waited
    /// for, since they alone keep it.
    pub(super) fn forget_lifeless(&self, id: PoolId) {
        if !self.pools.released().iter().any(|core| core.id == id) {
            return;
        }
        if !self.shared.settings.never_block.load(Relaxed) {
            for heap in self.heaps_of(id) {
                if !heap.stream_state().is_capturing() {
                    // What fails keeps the pool.
                    heap.unmap_fences().iter().for_each(|fence| _ = fence.wait());
                    heap.unmap_pending();
                }
            }
        }
        self.forget_pools();
    }

    /// Removes the pools that have no users and hold no memory any more.
    pub(crate) fn forget_pools(&self) {
        self.pools.forget(|core| {
            let heaps = self.heaps_of(core.id);
            if !heaps.iter().all(|heap| heap.is_empty()) {
                return None;
            }
            let gone = Arc::new(PoolState::gone(core.id));
            for heap in &heaps {
                heap.set_pool(&gone);
            }
            // Of two partners one is enough: it leads to the other.
            let leads = |heap: &&Arc<Heap<D>>| match heap.partner() {
                None => true,
                Some(partner) => {
                    let mutual = partner.partner();
                    heap.elastic().is_none() && mutual.is_some_and(|own| Arc::ptr_eq(&own, heap))
                }
            };
            Some(heaps.iter().filter(leads).map(|heap| heap.number()).collect())
        });
    }

    /// What a pool holds.
    pub(super) fn pool_stats(&self, core: &PoolState) -> PoolStats {
        let heaps = self.heaps_of(core.id);
        let sum = |counted| heaps.iter().map(|heap| heap.count(Row::All, counted)).sum();
        PoolStats {
            allocations: sum(Counted::Allocations),
            allocated_bytes: sum(Counted::AllocatedBytes),
            segments: sum(Counted::Segments),
            reserved_bytes: sum(Counted::ReservedBytes),
        }
    }

    /// The addresses that are allocated in a pool, in order.
    pub(super) fn live_in(&self, core: &PoolState) -> Vec<u64> {
        let mut live: Vec<u64> = self.heaps_of(core.id).iter().flat_map(|heap| heap.live()).collect();
        live.sort_unstable();
        live
    }

    /// Begins a route, which uses the pool until it is ended.
    pub(super) fn begin_allocate_to_pool(&self, filter: Filter, id: PoolId) -> Result<(), Error> {
        let core = self.pools.open(id)?;
        if let Err(error) = self.routes.begin(filter, &core) {
            self.release_pool(&core);
            return Err(error);
        }
        self.refresh_routes();
        for heap in self.heaps_of(id) {
            // A capture that begins now cannot look at events. What fails is tried again at the next request.
            let _ = heap.process_events();
        }
        if let Some(source) = &core.source {
            source.began(self.shared.device.info().ordinal, id.pair());
        }
        Ok(())
    }

    pub(super) fn end_allocate_to_pool(&self, id: PoolId) -> Result<(), Error> {
        let core = self.routes.end(id)?;
        self.refresh_routes();
        for heap in self.heaps_of(id) {
            heap.tend_after_capture();
        }
        if let Some(source) = &core.source {
            source.ended(self.shared.device.info().ordinal, id.pair());
        }
        self.release_pool(&core);
        Ok(())
    }

    /// Lets every heap of the default pool know whether there are routes.
    fn refresh_routes(&self) {
        let routed = self.routes.are_there();
        for heap in self.heaps.all() {
            heap.set_routed(routed && heap.pool().is_none());
        }
    }
}

#[cfg(test)]
mod tests {
    use cachette_hal::Ordinal;
    use cachette_hal_host::{HostBackend, HostConfig, HostDevice};

    use crate::{Allocation, Allocator, Config};

    const ELASTIC: &str = "expandable_segments:True";

    fn allocator() -> Allocator<HostDevice> {
        let backend = HostBackend::new(HostConfig::default().phantom(true)).unwrap();
        Allocator::new(backend.device(Ordinal(0)).unwrap())
    }

    fn set(allocator: &Allocator<HostDevice>, text: &str) {
        let config: Config = text.parse().unwrap();
        allocator.set_config(&config);
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
    fn p6_partners_are_used_again_as_one() {
        let allocator = allocator();
        let stream = allocator.create_stream().unwrap();
        let mut counts = Vec::new();
        for _ in 0..50 {
            set(&allocator, "");
            let pools = [allocator.create_pool(), allocator.create_pool()];
            let [one, two] = pools.each_ref().map(|pool| pool.allocate(512, &stream).unwrap());
            set(&allocator, ELASTIC);
            let [three, four] = pools.each_ref().map(|pool| pool.allocate(3 << 20, &stream).unwrap());
            for (pool, live) in pools.iter().zip([[&one, &three], [&two, &four]]) {
                assert!(pool.check_live_allocations(&live.map(Allocation::address)));
            }
            drop((one, two, three, four, pools));
            allocator.empty_cache().unwrap();
            counts.push(allocator.inner().heaps.all().len());
        }
        // The stream's own, and two of each kind.
        assert!(counts.iter().all(|count| *count == 5), "{counts:?}");
    }
}
