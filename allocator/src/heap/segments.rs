//! How a heap obtains segments and returns them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device, DevicePtr, StreamRef};

use crate::address_index::SegmentRef;
use crate::blocks::{IdleSegment, SegmentId};
use crate::error::{Error, sum_all};
use crate::fence::Fence;
use crate::heap::{Allocated, Heap, HeapState, Request};
use crate::observe::callbacks::{CallbackOutcome, Notice, TraceAction};
use crate::size::{SegmentKind, UNIT};
use crate::source::{AllocContext, SourceError, SourceErrorKind};
use crate::stats::{Counted, Row};

/// A segment that is being added to a heap or removed from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewSegment {
    pub(crate) base: DevicePtr,
    pub(crate) bytes: u64,
    pub(crate) kind: SegmentKind,
}

impl<D: Device> Heap<D> {
    /// Adds a segment and allocates a block from it for the request, before any other thread can.
    ///
    /// Returns `None` if the heap's tables are full. The segment is then returned to the device.
    pub(crate) fn grow(self: &Arc<Self>, segment: NewSegment, request: Request) -> hal::Result<Option<Allocated>> {
        let mut state = self.state.lock();
        let Some(id) = self.put_in(&mut state, segment) else {
            drop(state);
            let release = self.shared.in_flight.release();
            self.forget_made(segment);
            self.free_memory(segment, &[], &mut CallbackOutcome::default())?;
            self.shared.totals.reserved.fetch_sub(segment.bytes, Relaxed);
            // This request cannot use the memory, so its release is no reason for a retry.
            release.cancel();
            return Ok(None);
        };
        let base = segment.base.address();
        state.note_gain(TraceAction::SegmentAlloc, base, segment.bytes);
        let HeapState { blocks, policy, .. } = &mut *state;
        let allocated = blocks
            .allocate_from_segment(policy, id, policy.round(request.requested))
            .map(|id| self.mark_allocated_slow(&mut state, id, request).0);
        self.flush_stats(&mut state.blocks);
        drop(state);
        self.shared.peaks.note(&self.counters);
        let outcome = self.tell(TraceAction::SegmentAlloc, base, segment.bytes);
        self.shared.callbacks.notice(Notice::Mapped { address: base, bytes: segment.bytes });
        if let Some(allocated) = &allocated {
            self.tell_alloc(allocated, request.requested, outcome);
        }
        Ok(allocated)
    }

    /// Adds a segment to the blocks, the index and the counters. Returns `None` if the tables are full.
    fn put_in(&self, state: &mut HeapState<D>, segment: NewSegment) -> Option<SegmentId> {
        let NewSegment { base, bytes, kind } = segment;
        let order = self.shared.totals.segments.fetch_add(1, Relaxed);
        let id = state.blocks.add_segment(base.address(), bytes, kind, order)?;
        self.index(segment, id);
        self.counters.raise(Counted::Segments, kind, 1);
        self.counters.raise(Counted::ReservedBytes, kind, bytes);
        if bytes >= self.shared.totals.max_split {
            self.shared.totals.oversize_segments.lock().raise(1);
        }
        Some(id)
    }

    fn index(&self, segment: NewSegment, id: SegmentId) {
        let home = SegmentRef { heap: self.number, segment: id };
        let index = &self.shared.index;
        index.set(segment.base.address(), segment.bytes, Some(home));
    }

    /// Returns the segments that can be released now, oldest first: the idle ones, or none if the stream is captured.
    ///
    /// A release records an event in the stream and waits for it, which would invalidate a capture.
    pub(crate) fn idle_segments(&self) -> hal::Result<Vec<IdleSegment>> {
        if self.stream_state.ask_capturing()? {
            return Ok(Vec::new());
        }
        let mut state = self.state.lock();
        if state.policy.ages {
            state.blocks.clock = self.shared.settings.clock.load(Relaxed);
        }
        let idle = state.blocks.idle_segments();
        self.flush_stats(&mut state.blocks);
        Ok(idle)
    }

    /// Returns an idle segment to the device. Returns zero bytes if a request uses it, or a capture has begun.
    ///
    /// A failure or a panic of the pool's source changes nothing.
    pub(crate) fn release(&self, idle: IdleSegment) -> hal::Result<u64> {
        // This comes before the segment leaves the lists.
        let release = self.shared.in_flight.release();
        // A panic of a tracker continues after the segment is freed, or available again.
        let mut outcome = CallbackOutcome::default();
        let Some((leaving, guards)) = Leaving::begin(self, idle.id) else {
            release.cancel();
            return Ok(0);
        };
        let segment = leaving.segment;
        if !self.free_memory(segment, &guards, &mut outcome)? {
            return Ok(0);
        }
        leaving.end();
        let totals = &self.shared.totals;
        totals.reserved.fetch_sub(segment.bytes, Relaxed);
        if segment.bytes >= totals.max_split {
            totals.oversize_segments.lock().lower(1);
        }
        Ok(segment.bytes)
    }

    fn place(&self, stream: StreamRef) -> AllocContext {
        AllocContext::new(self.shared.device.info().ordinal, stream)
    }

    /// Calls the source of the heap's pool, which may need the current device.
    fn while_current<T>(&self, call: impl FnOnce() -> T) -> hal::Result<T> {
        let (mut call, mut answer) = (Some(call), None);
        self.shared.device.while_current(&mut || answer = call.take().map(|call| call()))?;
        answer.ok_or(hal::Error::new(hal::ErrorKind::Other, "while_current"))
    }

    /// Requests a segment from the device or the source of the heap's pool. Returns `None` if there is no memory.
    ///
    /// `block_around` finds the block that contains an address. A source may not return memory of the same allocator:
    /// an address would have two blocks, and a raw free could end the wrong one.
    pub(crate) fn alloc_segment(
        &self,
        bytes: u64,
        block_around: impl Fn(u64) -> Option<u64>,
    ) -> Result<Option<DevicePtr>, Error> {
        let pool = self.pool();
        let with_source = pool.as_ref().and_then(|pool| Some((pool, pool.options.source.as_ref()?)));
        let Some((pool, source)) = with_source else {
            let driver_pool = self.policy().driver_pool;
            return match if driver_pool { self.allocate_on_driver(bytes)? } else { self.shared.device.allocate(bytes) }
            {
                Ok(base) => Ok(Some(base)),
                Err(error) if error.kind() == hal::ErrorKind::OutOfMemory => Ok(None),
                Err(error) => Err(error.into()),
            };
        };
        let _called = pool.call_source();
        let place = self.place(self.stream_state.handle);
        // SAFETY: 1. the stream state keeps its stream alive. 2. `while_current`.
        match self.while_current(|| unsafe { source.allocate(bytes, &place) })? {
            Ok(base) if base.address().is_multiple_of(UNIT) && base.address().checked_add(bytes).is_some() => {
                let ends = [base.address(), base.address() + bytes - 1];
                let known = ends.into_iter().find_map(block_around);
                let made = known.map_or_else(|| pool.note_made(base.address(), bytes), Err);
                // The memory is not freed, since a free could release what is in use.
                made.map_err(|other| {
                    let text =
                        format!("{} gave {base}, which overlaps memory of this allocator at {other:#x}", source.name());
                    SourceError::other(text, "return memory of the device that the allocator does not have")
                })?;
                Ok(Some(base))
            }
            Ok(base) => {
                // SAFETY: 1. 2. the segment was just allocated, and no other code has its address. 3. `while_current`.
                self.while_current(|| unsafe { source.free(base, bytes, &place) })??;
                let (name, address) = (source.name(), base.address());
                Err(if address.is_multiple_of(UNIT) {
                    let text = format!("{name} gave {bytes} bytes at {address:#x}, beyond the last address");
                    SourceError::other(text, "return memory that ends below 2^64").into()
                } else {
                    let text = format!("{name} gave the unaligned address {address:#x}");
                    SourceError::other(text, "return multiples of 512").into()
                })
            }
            Err(error) if error.kind() == SourceErrorKind::OutOfMemory => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn allocate_on_driver(&self, bytes: u64) -> Result<hal::Result<DevicePtr>, Error> {
        // Memory of a captured request would belong to the graph. A capture allocates from its own pool instead.
        if self.stream_state.ask_capturing()? {
            return Ok(Err(hal::Error::new(hal::ErrorKind::CaptureForbids, "allocate_on")));
        }
        let driver_pool = self.shared.device.stream_ordered()?;
        // SAFETY: 1. the stream state keeps its stream alive.
        Ok(unsafe { driver_pool.allocate_on(bytes, self.stream_state.handle) })
    }

    /// Frees a segment to the driver's pool, behind the work of the heap's stream and behind `guards`.
    fn free_on_driver(&self, segment: NewSegment, guards: &[Arc<Fence<D>>], stream: StreamRef) -> hal::Result<()> {
        let driver_pool = self.shared.device.stream_ordered().map_err(hal::Error::from)?;
        for guard in guards {
            guard.hold_back(&self.stream_state)?;
        }
        // SAFETY: 1. the segment came from this pool, and only this heap still has its address. 2. The stream waits for
        // the work of other streams, and no later work uses the memory.
        unsafe { driver_pool.free_on(segment.base, stream) }
    }

    /// Removes a segment from the list of those that the source of the heap's pool has allocated.
    fn forget_made(&self, segment: NewSegment) {
        if let Some(pool) = self.pool() {
            pool.forget_made(segment.base.address());
        }
    }

    /// Returns a segment to the device after all work that may use it; `false` if the stream is captured.
    fn free_memory(
        &self,
        segment: NewSegment,
        guards: &[Arc<Fence<D>>],
        outcome: &mut CallbackOutcome,
    ) -> hal::Result<bool> {
        let driver_pool = self.policy().driver_pool;
        if !driver_pool {
            let Some(fence) = Fence::try_record(&self.stream_state)? else { return Ok(false) };
            fence.wait()?;
            guards.iter().try_for_each(|guard| guard.wait())?;
        }
        let stream = self.stream_state.order_behind()?;
        let (address, bytes) = (segment.base.address(), segment.bytes);
        self.state.lock().note_loss(TraceAction::SegmentFree, address, bytes);
        *outcome = self.tell(TraceAction::SegmentFree, address, bytes);
        self.shared.callbacks.notice(Notice::Unmapping { address, bytes });
        let pool = self.pool();
        let _called = pool.as_ref().map(|pool| pool.call_source());
        let freed = match pool.as_ref().and_then(|pool| pool.options.source.as_ref()) {
            // SAFETY: 1. 2. as below. The heap stays in its pool while it has a segment. 3. `while_current`.
            Some(source) => self
                .while_current(|| unsafe { source.free(segment.base, bytes, &self.place(stream)) })
                .and_then(|freed| freed.map_err(|_| hal::Error::new(hal::ErrorKind::Other, "free of a pool's source"))),
            None if driver_pool => self.free_on_driver(segment, guards, stream),
            // SAFETY: 1. the segment came from this device, and only this heap still has its address. 2. No block of it
            // is allocated, and the waits above cover the work of the heap's stream and of others.
            None => unsafe { self.shared.device.free(segment.base) },
        };
        if freed.is_ok() {
            self.shared.totals.device_frees.fetch_add(1, Relaxed);
        } else {
            self.shared.callbacks.notice(Notice::Mapped { address, bytes });
            self.state.lock().note_gain(TraceAction::SegmentAlloc, address, bytes);
            let before = std::mem::take(outcome);
            *outcome = before.and(self.tell(TraceAction::SegmentAlloc, address, bytes));
        }
        freed.map(|()| true)
    }

    /// Returns every idle segment to the device, or every idle chunk. A failure does not stop the others.
    pub(crate) fn release_idle(&self) -> hal::Result<u64> {
        if self.is_elastic() {
            return self.release_idle_chunks(|_| true);
        }
        sum_all(self.idle_segments()?.into_iter().map(|idle| self.release(idle)))
    }

    /// Returns all unused memory, including pending blocks whose events have passed.
    pub(crate) fn empty(&self) -> hal::Result<u64> {
        let processed = self.process_events();
        let bytes = self.release_idle();
        processed.and(bytes)
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.counters.now(Row::All, Counted::ReservedBytes)
    }
}

/// A segment that is being removed from a heap. If this is dropped before `end`, the segment becomes available again.
struct Leaving<'a, D: Device> {
    heap: &'a Heap<D>,
    id: SegmentId,
    segment: NewSegment,
    has_left: bool,
}

impl<'a, D: Device> Leaving<'a, D> {
    /// Begins the removal of an idle segment. Returns `None` if it is no longer idle, or if a graph may use it.
    fn begin(heap: &'a Heap<D>, id: SegmentId) -> Option<(Self, Vec<Arc<Fence<D>>>)> {
        let mut state = heap.state.lock();
        if !heap.permits_release() {
            return None;
        }
        let (segment, guards) = state.blocks.begin_leaving(id)?;
        let segment = NewSegment { base: DevicePtr::new(segment.base)?, bytes: segment.bytes, kind: segment.kind };
        heap.flush_stats(&mut state.blocks);
        drop(state);
        // This comes before the device can assign the addresses to another heap.
        heap.shared.index.set(segment.base.address(), segment.bytes, None);
        heap.forget_made(segment);
        Some((Self { heap, id, segment, has_left: false }, guards))
    }

    /// Removes the segment after its memory is freed.
    fn end(mut self) {
        self.has_left = true;
        let NewSegment { kind, bytes, .. } = self.segment;
        let counters = &self.heap.counters;
        let mut state = self.heap.state.lock();
        state.blocks.leave(self.id);
        counters.lower(Counted::Segments, kind, 1);
        counters.lower(Counted::ReservedBytes, kind, bytes);
    }
}

impl<D: Device> Drop for Leaving<'_, D> {
    fn drop(&mut self) {
        if self.has_left {
            return;
        }
        let NewSegment { base, bytes, .. } = self.segment;
        if let Some(pool) = self.heap.pool() {
            // The segment was listed before, so it overlaps no other.
            let _ = pool.note_made(base.address(), bytes);
        }
        let mut state = self.heap.state.lock();
        self.heap.index(self.segment, self.id);
        state.blocks.stay(self.id);
        if std::thread::panicking() {
            state.note_gain(TraceAction::SegmentAlloc, base.address(), bytes);
        }
    }
}

impl<D: Device> Drop for Heap<D> {
    /// Releases all memory, since nothing is allocated any more. A destructor cannot report a failure. It continues
    /// with the rest, and retries each failure once. A panic of a tracker continues at the end.
    fn drop(&mut self) {
        let mut outcome = CallbackOutcome::default();
        if let Some(pool) = self.pool() {
            // Its graphs are gone, even if a route to it was never ended.
            pool.end_keep();
        }
        let process_events = || CallbackOutcome::of(|| _ = self.process_events());
        for _ in 0..2 {
            outcome = outcome.and(process_events());
            for fence in self.all_fences() {
                let _ = fence.wait();
            }
            outcome = outcome.and(process_events());
            for idle in self.idle_segments().unwrap_or_default() {
                outcome = outcome.and(CallbackOutcome::of(|| _ = self.release(idle)));
            }
            outcome = outcome.and(CallbackOutcome::of(|| self.release_all_chunks()));
        }
        self.release_addresses();
        self.shared.peaks.retire(&self.counters);
    }
}
