//! The steps when no free block fits. Each step runs only if all previous steps failed.
//!
//! | step | action | may wait for the device |
//! |---|---|---|
//! | free-memory callbacks | asks the callbacks of `Allocator::on_pressure` to free memory | no |
//! | garbage collect | releases old idle segments, above the configured threshold | yes |
//! | `alloc_direct` | where mapping would wait for the default stream now: requests a direct segment instead | no |
//! | `alloc_segment` | requests a segment from the device, within the limit | only if its driver does |
//! | `alloc_segment`, pressed | with elastic segments: uses every idle chunk, whatever it costs to move | no |
//! | release enough | releases unsplittable segments of this stream, as many as the request needs | yes |
//! | wait | waits for the cheapest set of other streams' uses that makes a block large enough | yes |
//! | release all | waits for graphs of pools without users, and releases every idle segment of every stream | yes |
//! | trim | with the driver's pool: waits for the streams that freed memory to it, and returns that to the device | yes |
//! | wait on | waits for one segment after the other to become free, the earliest first | yes |
//! | `use_on_oom` | allocates a free block of a pool that serves other requests before they fail | no |
//! | without mapping | where the device has room but refuses to map it: requests a direct segment | no |
//! | neighbours' idle memory | [asks](crate::reclaim) other processes, if the device is short: at most some windows of 50 ms | no |
//! | evict | puts [evictable](crate::evict) pools to sleep that have no guard, as many as the request needs | yes |
//! | neighbours' all | asks those that received memory just now, and for evictable pools of lower priority | no |
//! | wait for neighbours | with `reclaim_wait`: runs the steps again for so long | yes |
//!
//! The heap is searched again after every step that can have freed memory. Before a request fails, it waits for memory
//! that other threads are releasing and for limit reservations that they may cancel. Then it retries (`in_flight`).
//! With `never_block`, the steps that may wait and this final wait are skipped.

#![forbid(unsafe_code)]

mod obtain;
mod report;
mod wait;

pub(crate) use wait::release_whole;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device, StreamRef};

use crate::allocator::allocator_state::AllocatorState;
use crate::device_state::DeviceState;
use crate::elastic::{self, ChunkDonors, Wanted};
use crate::error::Error;
use crate::fence::Fence;
use crate::heap::{Allocated, Heap, NewSegment};
use crate::heap_policy::HeapPolicy;
use crate::in_flight::Ended;
use crate::observe::callbacks::Notice;
use crate::out_of_memory::OutOfMemory;
use crate::pool::pool_state::PoolState;
use crate::reclaim::Reclaim;
use crate::size::{SegmentKind, kind_of};
use crate::source::SourceError;
use crate::stats::{Counted, Row};
use crate::stream_state::StreamState;

pub(crate) struct FoundBlock<D: Device> {
    pub(crate) heap: Arc<Heap<D>>,
    pub(crate) allocated: Allocated,
}

impl<D: Device> FoundBlock<D> {
    pub(crate) fn of(heap: &Arc<Heap<D>>, allocated: Allocated) -> Self {
        Self { heap: Arc::clone(heap), allocated }
    }
}

/// Why no further step runs.
enum StepEnd<D: Device> {
    Found(FoundBlock<D>),
    Failed(Error),
}

/// The result of a step; `Ok` if the next step should run.
type Step<D> = Result<(), StepEnd<D>>;

impl<D: Device, E: Into<Error>> From<E> for StepEnd<D> {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

pub(crate) struct Retry<'a, D: Device> {
    inner: &'a AllocatorState<D>,
    shared: &'a DeviceState<D>,
    heap: &'a Arc<Heap<D>>,
    policy: HeapPolicy,
    wanted: Wanted,
    rounded: u64,
    /// The size of the segment that would serve the request. For an elastic segment, the size in whole pages.
    segment: u64,
    kind: SegmentKind,
    /// The releases and reservations that had ended when the device was last asked.
    tried: Cell<Ended>,
    /// The other processes on the device.
    others: Reclaim<'a, D>,
}

impl<'a, D: Device> Retry<'a, D> {
    pub(crate) fn new(inner: &'a AllocatorState<D>, heap: &'a Arc<Heap<D>>, wanted: Wanted) -> Self {
        let policy = heap.policy();
        let rounded = wanted.block_bytes(&policy);
        let segment = match inner.shared.device.virtual_memory() {
            Ok(memory) if heap.is_elastic() => rounded.next_multiple_of(elastic::page(memory)),
            _ => policy.segment_bytes(rounded),
        };
        let kind = kind_of(rounded);
        let others = Reclaim::new(inner, segment, heap.pool().and_then(|pool| pool.options.priority));
        Self {
            inner,
            shared: &inner.shared,
            heap,
            policy,
            wanted,
            rounded,
            segment,
            kind,
            tried: Cell::default(),
            others,
        }
    }

    #[cold]
    pub(crate) fn run(&self) -> Result<FoundBlock<D>, Error> {
        self.inner.join_neighbours();
        match self.run_all() {
            Err(StepEnd::Found(found)) => Ok(found),
            Err(StepEnd::Failed(error)) => Err(error),
            Ok(report) => {
                AllocatorState::check_awake(self.heap)?;
                Err(self.fail(report))
            }
        }
    }

    /// The error of a request without memory, after the observers have heard of it.
    fn fail(&self, report: OutOfMemory) -> Error {
        self.shared.totals.ooms.fetch_add(1, Relaxed);
        self.shared.callbacks.report_oom(&report);
        report.into()
    }

    fn run_all(&self) -> Result<OutOfMemory, StepEnd<D>> {
        self.search()?;
        if self.shared.callbacks.run_free_memory_callbacks() {
            self.search()?;
        }
        self.check_nested()?;
        loop {
            // One request at a time adds memory to a heap. The next one may find the remainder of the first.
            let alone = self.heap.growth.lock();
            // The pool may have gone to sleep in the meantime.
            AllocatorState::check_awake(self.heap)?;
            let _relaxed = self.shared.relax_capture();
            self.run_steps()?;
            self.allocate_from_pools()?;
            self.alloc_without_mapping()?;
            let tried = self.tried.get();
            // An operation in flight may need the heap: a source may allocate memory during its own call. So may an
            // eviction on another thread.
            drop(alone);
            if self.may_wait() && self.shared.in_flight.may_change(tried) {
                self.shared.callbacks.waiting(|| self.shared.in_flight.wait(tried));
            } else if !self.obtain_memory() {
                return Ok(self.report());
            }
        }
    }

    /// Rejects a request to a source from inside a call of that source, since the request would wait for itself.
    fn check_nested(&self) -> Result<(), Error> {
        if let Some(pool) = self.heap.pool().filter(|pool| pool.is_in_source())
            && let Some(source) = &pool.options.source
        {
            let text = format!("pool {} needs memory of {} inside a call of that source", pool.id, source.name());
            return Err(SourceError::other(text, "allocate from the default pool or from another pool there").into());
        }
        Ok(())
    }

    fn run_steps(&self) -> Step<D> {
        self.search()?;
        let may_wait = self.may_wait();
        // A failing heap does not stop the others. Its error is returned if no other heap serves the request.
        let mut failed = if may_wait { self.garbage_collect() } else { Ok(()) };
        self.tried.set(self.shared.in_flight.begin_attempt());
        if self.is_rejected() {
            return Ok(());
        }
        let mut frees = self.frees();
        if let Some(busy) = self.mapping_would_wait()? {
            self.alloc_direct()?;
            if self.shared.settings.never_block.load(Relaxed) {
                return Ok(());
            }
            // Outside the turn, so that the requests of other threads do not wait for it too.
            busy.wait()?;
        }
        self.alloc_segment(false)?;
        if self.heap.is_elastic() {
            self.alloc_segment(true)?;
        }
        if !may_wait {
            return Ok(());
        }
        match self.release_enough() {
            Ok(true) => {
                frees = self.frees();
                self.alloc_segment_again()?;
            }
            Ok(false) => {}
            Err(error) => failed = failed.and(Err(error)),
        }
        self.wait_for_cheapest()?;
        // Records the fences that failed before, so that the next steps see them.
        let heaps = self.inner.heaps.iter().filter(|heap| heap.has_memory());
        failed = heaps.map(|heap| heap.process_events()).fold(failed, Result::and);
        // A pool without users keeps its memory until the wait for its graphs has succeeded.
        failed = failed.and(self.inner.wait_for_abandoned_graphs());
        failed = self.donors().iter().map(|heap| release_whole(heap)).fold(failed, Result::and);
        // Another thread may have released memory first, which serves all requests.
        if self.frees() != frees {
            self.alloc_segment_again()?;
        }
        let trimmed = self.trim_driver_pool();
        if matches!(trimmed, Ok(true)) {
            self.alloc_segment_again()?;
        }
        self.wait_on()?;
        trimmed?;
        Ok(failed?)
    }

    /// Returns what the driver's pool holds to the device, if there is such a pool, and the limit allows the request.
    fn trim_driver_pool(&self) -> Result<bool, Error> {
        let exists = self.shared.settings.is_driver_pool() && self.shared.device.stream_ordered().is_ok();
        if !exists || !self.within_limit() {
            return Ok(false);
        }
        self.inner.trim_driver_pool(&self.inner.heaps.all()).map(|()| true)
    }

    /// Whether steps may wait. The work of a captured stream does not run, so a wait would not end.
    fn may_wait(&self) -> bool {
        !self.shared.settings.never_block.load(Relaxed) && !self.heap.stream_state.is_capturing()
    }

    /// The heaps with memory that can release some: outside used pools, and in this pool unless graphs may use it.
    fn donors(&self) -> Vec<Arc<Heap<D>>> {
        let own = self.heap.pool();
        let heaps = self.inner.heaps.iter().filter(|heap| heap.has_memory());
        heaps.filter(|heap| gives(heap, own.as_ref())).cloned().collect()
    }

    /// The heaps whose idle chunks can move to this one, in a pool only its own, and the number of heaps with memory.
    fn chunk_donors(&self) -> ChunkDonors<D> {
        let own = self.heap.pool();
        let id = own.as_ref().map(|pool| pool.id);
        let gives = |heap: &Heap<D>| (own.is_none() || Some(heap.pool_id()) == id) && gives(heap, own.as_ref());
        // There may be thousands of heaps, so those that are parked with little memory are only counted.
        let (numbers, holders) = self.shared.peaks.with_spare(elastic::SMALLEST_PAGE);
        let mut donors = ChunkDonors { heaps: Vec::new(), holders };
        let heaps = numbers.into_iter().filter_map(|number| self.inner.heaps.get(number));
        for heap in heaps.filter(|heap| heap.has_memory()) {
            // A chunk may be idle, now or after the events of pending blocks, if it fits into what is not allocated.
            let unused = heap.reserved().saturating_sub(heap.counters.now(Row::All, Counted::AllocatedBytes));
            let may_give = unused >= elastic::SMALLEST_PAGE;
            if (may_give || donors.holders < elastic::MANY_HEAPS) && gives(heap) {
                donors.holders += 1;
                donors.heaps.extend(may_give.then(|| Arc::clone(heap)));
            }
        }
        donors
    }

    /// Allocates a free block from a pool that serves other requests before they fail.
    fn allocate_from_pools(&self) -> Step<D> {
        if self.heap.pool().is_some() || self.wanted.place.is_some() {
            return Ok(());
        }
        for pool in self.inner.pools.on_oom() {
            let number = pool.streams.get(self.heap.stream_state.handle.raw());
            if let Some(heap) = number.and_then(|number| self.inner.heaps.get(number))
                && let Some(allocated) = heap.allocate_after_events(self.wanted.request)?
            {
                // A sleep that begins now is refused. One that has begun does not know of the block.
                let Ok(_awake) = pool.stay_awake() else {
                    heap.put_back(allocated, heap.guards_of(&allocated, &heap.stream_state));
                    continue;
                };
                heap.note_lent(allocated.id);
                return Err(StepEnd::Found(FoundBlock::of(heap, allocated)));
            }
        }
        Ok(())
    }

    fn search(&self) -> Step<D> {
        self.end(self.heap.search_for(self.wanted)?)
    }

    /// Ends the steps if a block of the heap was found.
    fn end(&self, allocated: Option<Allocated>) -> Step<D> {
        allocated.map_or(Ok(()), |allocated| Err(StepEnd::Found(FoundBlock::of(self.heap, allocated))))
    }

    fn frees(&self) -> u64 {
        self.shared.totals.device_frees.load(Relaxed)
    }

    /// Returns whether the request fails without a call of the device, because it is beyond the limit.
    fn is_rejected(&self) -> bool {
        self.shared.settings.config().throw_on_driver_oom() && !self.within_limit()
    }

    fn within_limit(&self) -> bool {
        self.shared.room(self.segment) >= self.segment
    }

    /// Requests a segment from the device, unless the limit or the device refuses. An elastic heap fills unmapped ranges
    /// instead. When `pressed`, it uses every idle chunk.
    fn alloc_segment(&self, pressed: bool) -> Step<D> {
        self.tried.set(self.shared.in_flight.begin_attempt());
        if self.heap.is_elastic() {
            return self.end(self.heap.fill_for(self.wanted, || self.chunk_donors(), pressed)?);
        }
        let bytes = self.segment;
        let Some(reservation) = self.shared.reserve(bytes) else { return Ok(()) };
        let block_around = |address| self.inner.block_around(address).map(|(start, _)| start);
        let Some(base) = self.heap.alloc_segment(bytes, block_around)? else { return Ok(()) };
        reservation.keep(bytes);
        self.shared.totals.device_allocs.fetch_add(1, Relaxed);
        self.end(self.heap.grow(NewSegment { base, bytes, kind: self.kind }, self.wanted.request)?)
    }

    /// Returns a fence in the default stream if an elastic heap would now wait for it in the driver.
    fn mapping_would_wait(&self) -> Result<Option<Fence<D>>, Error> {
        if !self.heap.is_elastic() || self.shared.device.virtual_memory()?.maps_without_wait().is_ok() {
            return Ok(None);
        }
        let stream = Arc::new(StreamState::adopt(Arc::clone(&self.inner.shared), StreamRef::DEFAULT));
        // If the stream is captured, a fence cannot tell.
        let Some(fence) = Fence::try_record_at_once(&stream)? else { return Ok(None) };
        Ok(if fence.passes_soon()? { None } else { Some(fence) })
    }

    /// Serves the request of an elastic heap from a direct segment of the same stream. A pool with direct segments could
    /// not sleep, so pools have none. Nor is there a decided place in one.
    fn alloc_direct(&self) -> Step<D> {
        if self.heap.pool().is_some() || self.wanted.place.is_some() {
            return Ok(());
        }
        let heap = self.inner.direct_heap(self.heap)?;
        let _alone = heap.growth.lock();
        let direct = Retry::new(self.inner, heap, self.wanted);
        direct.search()?;
        let step = direct.alloc_segment(false);
        if matches!(step, Err(StepEnd::Found(_))) {
            self.shared.callbacks.notice(Notice::DirectSegment { bytes: direct.segment });
        }
        step
    }

    /// Serves the request from a direct segment if the device has room but refuses to map, as by a limit of the kernel.
    fn alloc_without_mapping(&self) -> Step<D> {
        let has_room = || self.shared.free_memory().is_ok_and(|free| free >= self.segment);
        let refused = self.heap.is_elastic() && self.within_limit() && has_room();
        if refused { self.alloc_direct() } else { Ok(()) }
    }

    /// Requests memory from the device again, after memory was returned to it.
    fn alloc_segment_again(&self) -> Step<D> {
        self.shared.totals.retries.fetch_add(1, Relaxed);
        self.alloc_segment(true)
    }
}

/// Returns whether a heap can release unused memory for a request of the pool `own`.
fn gives<D: Device>(heap: &Heap<D>, own: Option<&Arc<PoolState>>) -> bool {
    match (heap.pool(), own) {
        (Some(pool), Some(own)) if pool.id == own.id => own.may_release(),
        _ => heap.may_release(),
    }
}

/// Makes later work in `stream_state` wait for the guards of the block. After a failure the block is freed.
#[cold]
pub(crate) fn pass_guards<D: Device>(found: &mut FoundBlock<D>, stream_state: &StreamState<D>) -> hal::Result<()> {
    let guards = found.heap.guards_of(&found.allocated, stream_state);
    if guards.is_empty() {
        return Ok(());
    }
    // A captured stream cannot wait for work outside the capture, so the host waits.
    let captured = stream_state.is_capturing();
    let _relaxed = captured.then(|| stream_state.shared.relax_capture());
    for guard in &guards {
        let passed = if captured { guard.wait() } else { guard.hold_back(stream_state) };
        if let Err(error) = passed {
            found.heap.put_back(found.allocated, guards);
            return Err(error);
        }
    }
    found.heap.note_waits(&guards, stream_state);
    Ok(())
}
