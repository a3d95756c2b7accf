//! The allocator: the front door.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use cachette_hal::owned::RelaxedCapture;
use cachette_hal::{self as hal, AnyDevice, Device, DeviceInfo, StreamRef};

use crate::allocation::Allocation;
use crate::config::Config;
use crate::emit;
use crate::error::Error;
use crate::exhaustion::OutOfMemory;
use crate::heap::{Ask, Guard, Heap, Taken};
use crate::heaps::{Heaps, StreamTable};
use crate::history::Level;
use crate::ladder::{Climb, Found, pass_guards};
use crate::lane::{Lane, Stream};
use crate::leak::{Leak, leaks_of};
use crate::observe::TraceEvent;
use crate::pinned;
use crate::policy::Policy;
use crate::pool::route::{self, Routes};
use crate::pool::{Launches, PoolId, Pools};
#[cfg(target_os = "linux")]
use crate::share::{Exports, Imports};
use crate::shared::{Shared, fraction_of};
use crate::size::TOO_LARGE;
use crate::sleep::{Slumber, Store};
use crate::uncached::Uncached;

/// A caching allocator for one device.
///
/// It is a handle: clones name the same allocator. Everything may be called from any thread.
///
/// ```
/// use cachette::{Allocator, Backends};
///
/// let allocator = Allocator::new(Backends::open("host")?);
/// let stream = allocator.create_stream()?;
/// let memory = allocator.allocate(1 << 20, &stream)?;
/// assert_eq!(memory.requested(), 1 << 20);
/// drop(memory); // at once free for the next request on `stream`
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Allocator<D: Device = AnyDevice> {
    inner: Arc<Inner<D>>,
}

#[derive(Debug)]
pub(crate) struct Inner<D: Device> {
    pub(crate) shared: Arc<Shared<D>>,
    /// No other allocator ever has it; zero is none.
    pub(crate) identity: u64,
    /// The heaps of all pools.
    pub(crate) heaps: Heaps<D>,
    /// The heap of every stream in the default pool.
    pub(crate) streams: StreamTable,
    pub(crate) pools: Pools,
    pub(crate) routes: Arc<Routes>,
    pub(crate) pinned: Arc<pinned::Cache<D>>,
    /// The streams in which graphs were launched, by the pool of their memory.
    pub(crate) launches: Mutex<HashMap<PoolId, Launches<D>>>,
    /// The sleep of every pool that sleeps.
    pub(crate) slumbers: Mutex<HashMap<PoolId, Slumber<D>>>,
    /// Where contents are kept meanwhile.
    pub(crate) store: Store<D>,
    /// What other processes may open.
    #[cfg(target_os = "linux")]
    pub(crate) exports: Exports<D>,
    /// What was opened of other processes.
    #[cfg(target_os = "linux")]
    pub(crate) imports: Imports<D>,
}

impl<D: Device> Clone for Allocator<D> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<D: Device> Allocator<D> {
    /// An allocator for `device` with the default configuration.
    pub fn new(device: D) -> Self
    where
        D: 'static,
    {
        Self::with_config(device, &Config::default())
    }

    /// An allocator for `device` that behaves as `config` says.
    pub fn with_config(device: D, config: &Config) -> Self
    where
        D: 'static,
    {
        let shared = Arc::new(Shared::new(device, config));
        let routes = Arc::default();
        Self {
            inner: Arc::new(Inner {
                pinned: pinned::Cache::new(&shared, &routes),
                shared,
                identity: next_identity(),
                heaps: Heaps::default(),
                streams: StreamTable::default(),
                pools: Pools::default(),
                routes,
                launches: Mutex::default(),
                slumbers: Mutex::default(),
                store: Store::default(),
                #[cfg(target_os = "linux")]
                exports: Exports::default(),
                #[cfg(target_os = "linux")]
                imports: Imports::default(),
            }),
        }
    }

    pub(crate) fn inner(&self) -> &Inner<D> {
        &self.inner
    }

    fn shared(&self) -> &Arc<Shared<D>> {
        &self.inner.shared
    }

    /// Whether it is the allocator of a process that this one was forked from, and nothing may be done with it.
    pub(crate) fn is_inherited(&self) -> bool {
        self.shared().origin.is_inherited()
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &D {
        &self.inner.shared.device
    }

    /// Facts about the device.
    #[must_use]
    pub fn device_info(&self) -> &DeviceInfo {
        self.device().info()
    }

    /// Makes a stream of the device, which lives as long as anything that was allocated on it.
    pub fn create_stream(&self) -> Result<Stream<D>, Error> {
        self.shared().origin.check()?;
        let lane = Lane::create(Arc::clone(self.shared()))?;
        self.inner.stream_of(lane)
    }

    /// The device's default stream.
    pub fn default_stream(&self) -> Result<Stream<D>, Error> {
        let lane = Lane::adopt(Arc::clone(self.shared()), StreamRef::DEFAULT);
        self.inner.stream_of(lane)
    }

    /// Takes over a stream that someone else made and will destroy.
    ///
    /// # Safety
    ///
    /// 1. `stream` is a live stream of this allocator's device.
    /// 2. It stays so until this allocator and every allocation made on the stream are gone.
    pub unsafe fn adopt_stream(&self, stream: StreamRef) -> Result<Stream<D>, Error> {
        let lane = Lane::adopt(Arc::clone(self.shared()), stream);
        self.inner.stream_of(lane)
    }

    /// Allocates `bytes` bytes for work in `stream`.
    #[inline]
    pub fn allocate(&self, bytes: u64, stream: &Stream<D>) -> Result<Allocation<D>, Error> {
        let heap = &stream.heap;
        if !Arc::ptr_eq(heap.shared(), self.shared()) {
            return Err(Error::ForeignStream);
        }
        if route::is_inside() {
            return self.allocate_inside(bytes, stream);
        }
        self.allocate_from(bytes, heap)
    }

    /// Allocates from a heap of this allocator, for its stream.
    #[inline(always)]
    pub(crate) fn allocate_from(
        &self,
        bytes: u64,
        heap: &Arc<Heap<D>>,
    ) -> Result<Allocation<D>, Error> {
        // One comparison for both ends: zero wraps to the top.
        if bytes.wrapping_sub(1) >= TOO_LARGE - 1 {
            return self.allocate_oddly(bytes, heap.lane().stream());
        }
        let ask = Ask {
            requested: bytes,
            raw: false,
        };
        match heap.take_again(ask) {
            Ok(taken) => {
                let stream = heap.lane().stream();
                Ok(Allocation::of_block(heap, &taken, bytes, stream))
            }
            Err(held) => self.search(held, ask, heap),
        }
    }

    /// Allocates for a stream whose heap may be held already.
    ///
    /// Apart from [`allocate`](Self::allocate), so that this one has nothing to save on the stack.
    #[inline(never)]
    fn search(
        &self,
        held: Option<Guard<'_, D>>,
        ask: Ask,
        heap: &Arc<Heap<D>>,
    ) -> Result<Allocation<D>, Error> {
        let bytes = ask.requested;
        match heap.take(held, ask) {
            Some(taken) if !taken.guarded => {
                let stream = heap.lane().stream();
                Ok(Allocation::of_block(heap, &taken, bytes, stream))
            }
            None if !self.caches() => self.allocate_oddly(bytes, heap.lane().stream()),
            taken => {
                let stream = heap.lane().stream();
                let Found { heap, taken, .. } = self.inner.find_slowly(heap, ask, taken)?;
                Ok(Allocation::of_block(&heap, &taken, bytes, stream))
            }
        }
    }

    pub(crate) fn caches(&self) -> bool {
        self.shared().settings.caches.load(Relaxed)
    }

    /// Requests of no bytes, of more than any device has, and past the cache.
    #[cold]
    fn allocate_oddly(&self, bytes: u64, stream: StreamRef) -> Result<Allocation<D>, Error> {
        if bytes == 0 {
            return Ok(Allocation::empty(stream));
        }
        if bytes >= TOO_LARGE {
            return Err(Error::TooLarge { bytes });
        }
        self.shared().origin.check()?;
        let memory = Uncached::allocate(self.shared(), bytes, stream)?;
        Ok(Allocation::of_device(memory, bytes, stream))
    }

    /// Gives every unused segment back to the device, and says how many bytes that were.
    ///
    /// It waits for blocks that other streams still use, unless the configuration forbids to, and for the
    /// streams whose segments it gives back, as the driver does. For elastic segments it waits for nothing:
    /// memory that a stream may still use goes back when the stream is past it and the allocator next looks, and
    /// is not among the bytes that this says.
    pub fn empty_cache(&self) -> Result<u64, Error> {
        self.shared().origin.check()?;
        let _gathered = self.shared().history.gather(Level::All);
        // A capture may be under way, which must not be broken.
        let _relaxed = RelaxedCapture::enter(self.device()).ok();
        if !self.shared().settings.never_block.load(Relaxed) {
            self.inner.wait_for_left_graphs()?;
        }
        for core in self.inner.pools.released() {
            self.inner.forget_freed_asleep(&core);
        }
        let mut heaps = self.inner.heaps.all();
        heaps.retain(|heap| heap.gives_back());
        heaps.iter().try_for_each(|heap| heap.tend())?;
        let (elastic, direct): (Vec<_>, Vec<_>) =
            heaps.iter().partition(|heap| heap.elastic().is_some());
        for fence in elastic.iter().flat_map(|heap| heap.all_fences()) {
            if !fence.passes_soon()? {
                break;
            }
        }
        let fences: Vec<_> = direct.iter().flat_map(|heap| heap.all_fences()).collect();
        if !fences.is_empty() && !self.shared().settings.never_block.load(Relaxed) {
            self.shared().totals.waits.fetch_add(1, Relaxed);
            emit::waiting(|| fences.iter().try_for_each(|fence| fence.wait()))?;
        }
        let mut bytes = 0;
        for heap in heaps {
            heap.tend()?;
            bytes += heap.release_where(|_| true)?;
        }
        for source in self.inner.pools.sources() {
            source.emptied();
        }
        self.inner.forget_pools();
        Ok(bytes)
    }

    /// Bounds what the allocator may hold to a fraction of the device's memory; 1 is no bound.
    ///
    /// A bound below what is held already only keeps it from growing.
    pub fn set_memory_fraction(&self, fraction: f64) -> Result<(), Error> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::InvalidFraction(fraction.to_string()));
        }
        self.shared().origin.check()?;
        let limit = fraction_of(fraction, self.device_info().total_memory);
        self.shared().settings.limit.store(limit, Relaxed);
        for source in self.inner.pools.sources() {
            source.limited(fraction, self.device_info().ordinal);
        }
        Ok(())
    }

    /// Bounds what the allocator may hold, in bytes; `None` is no bound.
    pub fn set_memory_limit(&self, bytes: Option<u64>) {
        let limit = bytes.unwrap_or(u64::MAX);
        self.shared().settings.limit.store(limit, Relaxed);
    }

    /// What the allocator may hold, if that is bounded.
    #[must_use]
    pub fn memory_limit(&self) -> Option<u64> {
        self.shared().settings.limit()
    }

    /// The configuration as it is now; the default one in a forked child.
    #[must_use]
    pub fn config(&self) -> Config {
        if self.is_inherited() {
            return Config::default();
        }
        self.shared().settings.config()
    }

    /// Behaves as `config` says from now on. The bound on memory is not part of it: it has calls of its own.
    pub fn set_config(&self, config: &Config) {
        if self.is_inherited() {
            return;
        }
        let policy = Policy::of(config);
        self.shared().settings.apply(config);
        let elastic = self.inner.is_elastic();
        for heap in self.inner.heaps.all() {
            heap.set_policy(&policy, elastic);
        }
    }

    /// The largest block that is free, in bytes.
    #[must_use]
    pub fn largest_free(&self) -> u64 {
        let heaps = self.inner.heaps.all();
        heaps
            .iter()
            .map(|heap| heap.largest_free())
            .max()
            .unwrap_or(0)
    }

    /// The largest request that could be served now: from a free block, or from what the device has free.
    pub fn largest_available(&self) -> hal::Result<u64> {
        if self.is_inherited() {
            return Err(hal::Error::new(hal::ErrorKind::DeviceLost, "memory_info"));
        }
        let device = self.device().memory_info()?.free;
        Ok(self.largest_free().max(device))
    }

    /// Calls `observer` with the figures whenever a request ends in out-of-memory, before it returns.
    pub fn on_out_of_memory(&self, observer: impl Fn(&OutOfMemory) + Send + Sync + 'static) {
        if !self.is_inherited() {
            self.shared().observers.on_oom(Arc::new(observer));
        }
    }

    /// Asks `reliever` to free memory when no free block fits; it says whether it freed any.
    ///
    /// It may drop allocations; it may not allocate.
    pub fn on_pressure(&self, reliever: impl Fn() -> bool + Send + Sync + 'static) {
        if !self.is_inherited() {
            self.shared().observers.on_pressure(Arc::new(reliever));
        }
    }

    /// Tells `tracker` of everything that happens to memory, on the thread where it happens.
    ///
    /// It must not call the allocator.
    pub fn track(&self, tracker: impl Fn(&TraceEvent) + Send + Sync + 'static) {
        if self.is_inherited() {
            return;
        }
        self.shared().observers.track(Arc::new(tracker));
        for heap in self.inner.heaps.all() {
            heap.refresh();
        }
    }

    /// Calls `observer` when the allocator goes while memory is still allocated by address, which nobody can
    /// free any more. Memory with an owner is not among it: that stays until its owner is dropped.
    pub fn on_leak(&self, observer: impl Fn(&[Leak]) + Send + Sync + 'static) {
        if !self.is_inherited() {
            self.shared().observers.on_leak(Arc::new(observer));
        }
    }

    /// Memory that is allocated by address, and not freed yet.
    #[must_use]
    pub fn raw_allocations(&self) -> Vec<Leak> {
        if self.is_inherited() {
            return Vec::new();
        }
        self.inner.leaks()
    }

    /// Walks every structure and checks every invariant; the text says which one does not hold.
    ///
    /// It is for tests: it holds each heap for as long as the walk takes.
    pub fn check(&self) -> Result<(), String> {
        self.shared().origin.check().map_err(|e| e.to_string())?;
        let heaps = self.inner.heaps.all();
        heaps.iter().try_for_each(|heap| heap.check())?;
        let held: u64 = heaps.iter().map(|heap| heap.reserved()).sum();
        let reserved = self.shared().totals.reserved.load(Relaxed);
        if held != reserved {
            return Err(format!("{held} bytes are held and {reserved} are counted"));
        }
        Ok(())
    }
}

/// A number that no allocator has had yet.
fn next_identity() -> u64 {
    /// Relaxed: only the numbers must differ.
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// More streams than any driver has.
pub(crate) const NO_HEAP: hal::Error =
    hal::Error::new(hal::ErrorKind::OutOfMemory, "create_stream");

impl<D: Device> Inner<D> {
    /// The stream of a lane, with the heap it has in the default pool.
    fn stream_of(&self, lane: Lane<D>) -> Result<Stream<D>, Error> {
        self.shared.origin.check()?;
        let stream = lane.stream();
        let make = || {
            let policy = Policy::of(&self.shared.settings.config());
            let lane = Arc::new(lane);
            let heap = self
                .heaps
                .add(|number| Heap::new(lane, &policy, number, self.is_elastic()))?;
            heap.set_routed(self.routes.are_there());
            Some(heap.number())
        };
        let number = self.streams.get_or_add(stream, make);
        let heap = number
            .and_then(|number| self.heaps.get(number))
            .ok_or(NO_HEAP)?;
        Ok(Stream {
            lane: Arc::clone(heap.lane()),
            heap: Arc::clone(heap),
        })
    }

    /// Whether requests are served from elastic segments.
    pub(crate) fn is_elastic(&self) -> bool {
        self.shared.settings.elastic.load(Relaxed) && self.shared.device.virtual_memory().is_ok()
    }

    /// The heap of a raw stream, made if there is none yet.
    pub(crate) fn heap_of_raw(&self, stream: StreamRef) -> Result<&Arc<Heap<D>>, Error> {
        if let Some(number) = self.streams.get(stream)
            && let Some(heap) = self.heaps.get(number)
        {
            return Ok(heap);
        }
        self.stream_of(Lane::adopt(Arc::clone(&self.shared), stream))?;
        let number = self.streams.get(stream).ok_or(NO_HEAP)?;
        Ok(self.heaps.get(number).ok_or(NO_HEAP)?)
    }

    /// What is allocated by address, in the cache and past it.
    fn leaks(&self) -> Vec<Leak> {
        let mut leaks = leaks_of(&self.heaps);
        leaks.extend(self.shared.uncached.raw());
        leaks.extend(self.pinned.raw());
        leaks
    }

    /// Finds a block where none fits or guards stand before it, and makes the heap's stream wait for them.
    ///
    /// Every request in a forked child comes here, and goes no further.
    #[cold]
    pub(crate) fn find_slowly(
        &self,
        heap: &Arc<Heap<D>>,
        ask: Ask,
        taken: Option<Taken>,
    ) -> Result<Found<D>, Error> {
        self.shared.origin.check()?;
        let _gathered = self.shared.history.gather(Level::State);
        let mut found = match taken {
            Some(taken) => Found::of(heap, taken),
            None => self.find_elsewhere(heap, ask)?,
        };
        pass_guards(&mut found, heap.lane())?;
        Ok(found)
    }
}

impl<D: Device> Inner<D> {
    /// Finds a block where the heap had none that fits, in its partner if the configuration has changed.
    fn find_elsewhere(&self, heap: &Arc<Heap<D>>, ask: Ask) -> Result<Found<D>, Error> {
        if heap.is_routed() {
            return self.find_by_route(heap, ask);
        }
        self.find_in_pool(heap, ask)
    }

    /// Finds a block in the pool that a request is led to, if it is.
    fn find_by_route(&self, heap: &Arc<Heap<D>>, ask: Ask) -> Result<Found<D>, Error> {
        let lane = heap.lane();
        let led = self.routes.pool_for(lane.stream(), || lane.capture());
        let heap = match led {
            Some(pool) => self.heap_of_lane(&pool, lane)?,
            None => heap,
        };
        if !heap.is_retired()
            && let Some(taken) = heap.take_tended(ask)?
        {
            return Ok(Found::of(heap, taken));
        }
        self.find_in_pool(heap, ask)
    }

    fn find_in_pool(&self, heap: &Arc<Heap<D>>, ask: Ask) -> Result<Found<D>, Error> {
        Self::check_awake(heap)?;
        let retired = heap.is_retired();
        let heap = &if retired {
            self.partner_of(heap)?
        } else {
            Arc::clone(heap)
        };
        if retired && let Some(taken) = heap.take(None, ask) {
            return Ok(Found::of(heap, taken));
        }
        // What is left in segments of the device's own may still serve; what is elastic may not once that is off.
        if heap.elastic().is_some()
            && let Some(partner) = heap.partner()
            && let Some(taken) = partner.take_tended(ask)?
        {
            return Ok(Found::of(&partner, taken));
        }
        Climb::new(self, heap, ask).run()
    }

    /// The heap of the same stream with the other source, made if there is none yet.
    fn partner_of(&self, heap: &Arc<Heap<D>>) -> Result<Arc<Heap<D>>, Error> {
        if let Some(partner) = heap.partner() {
            return Ok(partner);
        }
        let policy = Policy::of(&self.shared.settings.config());
        let elastic = heap.elastic().is_none();
        let added = |number| Heap::new(Arc::clone(heap.lane()), &policy, number, elastic);
        let made = self.heaps.add(added).ok_or(NO_HEAP)?;
        if let Some(pool) = heap.pool() {
            made.set_pool(&pool);
        }
        heap.pair(made);
        // Another thread may have been faster: then its heap serves, and this one stays empty.
        Ok(heap.partner().unwrap_or_else(|| Arc::clone(made)))
    }
}

impl<D: Device> Drop for Allocator<D> {
    fn drop(&mut self) {
        self.shared().origin.keep(&self.inner);
    }
}

impl<D: Device> Drop for Inner<D> {
    fn drop(&mut self) {
        let leaks = self.leaks();
        if !leaks.is_empty() {
            self.shared.observers.report_leaks(&leaks);
        }
        #[cfg(target_os = "linux")]
        self.exports.close();
        for heap in self.heaps.all() {
            heap.close();
        }
        self.pinned.close();
    }
}
