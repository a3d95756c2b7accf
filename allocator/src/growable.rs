//! Growable allocations: addresses now, and memory where and when the program wants it.
//!
//! The addresses never change, so graphs that were captured on them stay valid.
//!
//! ```
//! use cachette::{Allocator, Backends};
//!
//! let allocator = Allocator::new(Backends::open("host")?);
//! let stream = allocator.create_stream()?;
//! let cache = allocator.allocate_growable(64 << 30, &stream)?; // addresses, without memory
//! cache.commit(0..256 << 20)?; // memory behind the first 256 MiB
//! cache.decommit(128 << 20..256 << 20)?; // the second half may serve other requests
//! assert_eq!((cache.bytes(), cache.committed()), (64 << 30, 128 << 20));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Memory comes in chunks of whole pages, from the same table as that of elastic segments. `docs/growable.md` says when a
//! chunk leaves, and what a commit and a decommit cost.

mod problem;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, MutexGuard};
use std::thread::{self, ThreadId};

use cachette_hal::{self as hal, AnyDevice, Device};

use crate::allocator::Allocator;
use crate::allocator::allocator_state::AllocatorState;
use crate::blocks::{BlockId, SegmentId};
use crate::elastic::{self, Wanted};
use crate::error::{Error, NO_HEAP};
use crate::heap::{Heap, Request, StreamUses};
use crate::label::Label;
use crate::observe::callbacks::CallbackOutcome;
use crate::observe::history::Level;
use crate::pool::Pool;
use crate::pool::pool_state::PoolState;
use crate::retry::{Retry, pass_guards};
use crate::size::UNIT;
use crate::stats::Counted;
use crate::stream::Stream;
use crate::stream_state::StreamState;
use crate::sync::Mutex;
use problem::MOST_BYTES;

pub use problem::GrowableProblem;

/// How often a commit waits for memory that leaves its addresses. Other requests may take it again in between.
const PATIENCE: usize = 16;

/// Addresses whose memory the program adds and removes.
///
/// A drop decommits everything. Offsets are bytes from the start.
pub struct Growable<D: Device = AnyDevice> {
    allocator: Allocator<D>,
    stream: Stream<D>,
    /// A user of the pool, so that it lives.
    pool: Option<Pool<D>>,
    heap: Arc<Heap<D>>,
    segment: SegmentId,
    address: u64,
    /// The position of the first byte among the blocks of the heap.
    place: u64,
    bytes: u64,
    page: u64,
    parts: Mutex<Parts>,
    /// Notified when a commit has ended.
    changed: Condvar,
}

/// The committed parts of a growable allocation.
///
/// No lock is held while a commit gets memory: the callbacks of that request may use other parts.
#[derive(Debug, Default)]
struct Parts {
    /// The committed bytes: disjoint ranges, each with its end. None touches the next.
    ranges: BTreeMap<u64, u64>,
    /// The blocks, by offset. They tile the pages of the committed bytes.
    blocks: BTreeMap<u64, BlockId>,
    /// The pages that commits are getting memory for, and their threads. Nothing else changes them.
    changing: Vec<(Range<u64>, ThreadId)>,
}

impl<D: Device> Allocator<D> {
    /// Reserves addresses for up to `most_bytes`, without memory. They may be more than the device has.
    pub fn allocate_growable(&self, most_bytes: u64, stream: &Stream<D>) -> Result<Growable<D>, Error> {
        Growable::new(self, None, most_bytes, stream)
    }
}

impl<D: Device> Pool<D> {
    /// Reserves addresses for up to `most_bytes`, without memory. Their memory sleeps and wakes with the pool.
    pub fn allocate_growable(&self, most_bytes: u64, stream: &Stream<D>) -> Result<Growable<D>, Error> {
        let pool = self.allocator().open_pool(self.id())?;
        Growable::new(self.allocator(), Some(pool), most_bytes, stream)
    }
}

impl<D: Device> Growable<D> {
    fn new(
        allocator: &Allocator<D>,
        pool: Option<Pool<D>>,
        most_bytes: u64,
        stream: &Stream<D>,
    ) -> Result<Self, Error> {
        let inner = allocator.inner();
        if !Arc::ptr_eq(&stream.heap.shared, &inner.shared) {
            return Err(Error::ForeignStream);
        }
        inner.shared.origin.check()?;
        let memory = inner.shared.device.virtual_memory()?;
        let page = elastic::page(memory);
        if most_bytes > MOST_BYTES {
            return Err(GrowableProblem::TooLarge { bytes: most_bytes }.into());
        }
        let bytes = most_bytes.max(1).next_multiple_of(page);
        let heap = Arc::clone(inner.growable_heap(pool.as_ref().map(|pool| &pool.state), &stream.stream_state)?);
        let (segment, address, place) = {
            let _alone = heap.growth.lock();
            let _relaxed = inner.shared.relax_capture();
            heap.reserve_exactly(bytes)?
        };
        let (allocator, stream) = (allocator.clone(), stream.clone());
        let (parts, changed) = (Mutex::default(), Condvar::new());
        Ok(Self { allocator, stream, pool, heap, segment, address, place, bytes, page, parts, changed })
    }

    /// The allocator.
    #[must_use]
    pub const fn allocator(&self) -> &Allocator<D> {
        &self.allocator
    }

    /// The address of the first byte.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// The bytes of the addresses: those requested, in whole pages.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes of a page: memory is added and removed in whole pages.
    #[must_use]
    pub const fn page(&self) -> u64 {
        self.page
    }

    /// The committed bytes.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.parts.lock().ranges.iter().map(|(start, end)| end - start).sum()
    }

    /// The stream in whose order memory comes and goes.
    #[must_use]
    pub const fn stream(&self) -> &Stream<D> {
        &self.stream
    }

    /// Puts memory behind a range without any. Its contents are undefined.
    ///
    /// Fails like a request of the same bytes if memory is short, and then changes nothing.
    pub fn commit(&self, range: Range<u64>) -> Result<(), Error> {
        let mut parts = self.parts_for(&range)?;
        if let Some(at) = parts.first_committed(&range) {
            return Err(GrowableProblem::Committed { at }.into());
        }
        if range.is_empty() {
            return Ok(());
        }
        let pages = parts.pages_of(&range, self.page);
        if !pages.is_empty() {
            let change = (self.whole_pages(&range), thread::current().id());
            parts.changing.push(change.clone());
            drop(parts);
            let mut allocated = None;
            let outcome = CallbackOutcome::of(|| allocated = Some(self.allocate(&pages)));
            parts = self.parts.lock();
            parts.changing.retain(|other| *other != change);
            self.changed.notify_all();
            drop(outcome);
            parts.blocks.extend(allocated.transpose()?.map(|id| (pages.start, id)));
        }
        parts.add(range);
        Ok(())
    }

    /// Takes the memory behind a committed range away, after the work that the stream has queued so far.
    ///
    /// A page leaves once none of its bytes is committed.
    pub fn decommit(&self, range: Range<u64>) -> Result<(), Error> {
        let mut parts = self.parts_for(&range)?;
        if let Some(at) = parts.first_uncommitted(&range) {
            return Err(GrowableProblem::NotCommitted { at }.into());
        }
        if range.is_empty() {
            return Ok(());
        }
        if self.heap.stream_state.ask_capturing()? {
            return Err(GrowableProblem::Captured.into());
        }
        parts.remove(&range);
        let pages = parts.pages_of(&range, self.page);
        if let Err(error) = self.part(&mut parts, &pages) {
            parts.add(range);
            return Err(error);
        }
        let leaving: Vec<_> = parts.blocks.range(pages).map(|(start, id)| (*start, *id)).collect();
        for (start, _) in &leaving {
            parts.blocks.remove(start);
        }
        // The memory is no longer committed; a block whose fence could not be recorded stays pending until it can.
        Ok(self.heap.free_guarded(leaving.into_iter().map(|(_, id)| id))?)
    }

    /// Records that `stream` also uses the memory that is committed now. After a decommit, its next use waits for the
    /// work that is then queued in `stream`.
    pub fn record_stream(&self, stream: &Stream<D>) {
        for id in self.parts.lock().blocks.values() {
            self.heap.record_use(*id, &stream.stream_state, false);
        }
    }

    /// Checks a range, and waits for commits of other threads in its pages.
    fn parts_for(&self, range: &Range<u64>) -> Result<MutexGuard<'_, Parts>, Error> {
        let (Range { start, end }, bytes) = (range.clone(), self.bytes);
        if start > end || end > bytes {
            return Err(GrowableProblem::OutOfRange { start, end, bytes }.into());
        }
        self.allocator.inner().shared.origin.check()?;
        let (pages, here) = (self.whole_pages(range), thread::current().id());
        let mut parts = self.parts.lock();
        while let Some((_, thread)) =
            parts.changing.iter().find(|(other, _)| other.start < pages.end && pages.start < other.end)
        {
            if *thread == here {
                return Err(GrowableProblem::Changing.into());
            }
            parts = Mutex::wait(&self.changed, parts);
        }
        Ok(parts)
    }

    /// The pages of a range.
    const fn whole_pages(&self, range: &Range<u64>) -> Range<u64> {
        range.start - range.start % self.page..range.end.next_multiple_of(self.page)
    }

    /// Splits the blocks around a range of pages at its ends, unless one of them is exported.
    fn part(&self, parts: &mut Parts, pages: &Range<u64>) -> Result<(), Error> {
        let state = self.heap.state.lock();
        let is_exported = |id: &BlockId| state.uses.get(id).is_some_and(|uses| uses.exports > 0);
        let around = parts.blocks.range(..pages.start).next_back();
        if around.into_iter().chain(parts.blocks.range(pages.clone())).any(|(_, id)| is_exported(id)) {
            return Err(GrowableProblem::Exported.into());
        }
        drop(state);
        parts.split_at(&self.heap, pages.start)?;
        parts.split_at(&self.heap, pages.end)
    }

    /// Allocates the block of a range of pages without memory.
    fn allocate(&self, pages: &Range<u64>) -> Result<BlockId, Error> {
        let inner = self.allocator.inner();
        let _gathered = inner.shared.history.gather(Level::State);
        let request = Request { requested: pages.end - pages.start, label: Label::OWNED };
        let place = self.place + pages.start / UNIT;
        let wanted = Wanted { request, place: Some(place) };
        for last in (0..PATIENCE).map(|nth| nth + 1 == PATIENCE) {
            AllocatorState::check_awake(&self.heap)?;
            let found = Retry::new(inner, &self.heap, wanted).run();
            match found {
                // Memory that leaves these addresses is in the way, and not a lack of memory.
                Err(error) if !last && error.is_out_of_memory() && self.heap.wait_for_place(place, request)? => {}
                Err(error) => return Err(error),
                Ok(mut found) => {
                    pass_guards(&mut found, &self.heap.stream_state)?;
                    return Ok(found.allocated.id);
                }
            }
        }
        Err(NO_HEAP.into())
    }
}

impl<D: Device> Drop for Growable<D> {
    fn drop(&mut self) {
        let shared = &self.allocator.inner().shared;
        shared.origin.keep(&self.heap);
        if shared.origin.is_inherited() {
            return;
        }
        let blocks = std::mem::take(&mut self.parts.lock().blocks).into_values();
        // A destructor cannot return a failure, and the heap retries. The addresses end also after a panic.
        let _outcome = CallbackOutcome::of(|| _ = self.heap.free_guarded(blocks));
        self.heap.state.lock().blocks.close_addresses(self.segment);
        self.heap.release_closed_addresses();
    }
}

impl<D: Device> fmt::Debug for Growable<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Growable")
            .field("address", &format_args!("{:#x}", self.address))
            .field("bytes", &self.bytes)
            .field("committed", &self.committed())
            .field("pool", &self.pool.as_ref().map(Pool::id))
            .finish_non_exhaustive()
    }
}

impl Parts {
    /// The first committed byte of a range.
    fn first_committed(&self, range: &Range<u64>) -> Option<u64> {
        let before = self.ranges.range(..=range.start).next_back().filter(|(_, end)| **end > range.start);
        let within = || self.ranges.range(range.clone()).next().map(|(start, _)| *start);
        before.map(|_| range.start).or_else(within).filter(|at| *at < range.end)
    }

    /// The first byte of a range that is not committed.
    fn first_uncommitted(&self, range: &Range<u64>) -> Option<u64> {
        let before = self.ranges.range(..=range.start).next_back();
        let end = before.map_or(range.start, |(_, end)| range.start.max(*end));
        Some(end).filter(|end| *end < range.end)
    }

    /// The pages of a range in which no byte is committed. The range itself is not committed.
    fn pages_of(&self, range: &Range<u64>, page: u64) -> Range<u64> {
        let Range { mut start, mut end } = range.clone();
        start -= start % page;
        end = end.next_multiple_of(page);
        // Only the first and the last page have bytes outside the range.
        if self.first_committed(&(start..range.start)).is_some() {
            start += page;
        }
        if start < end && self.first_committed(&(range.end..end)).is_some() {
            end -= page;
        }
        start..end.max(start)
    }

    fn add(&mut self, Range { mut start, mut end }: Range<u64>) {
        if let Some((before, stop)) = self.ranges.range(..start).next_back().map(|(start, end)| (*start, *end))
            && stop == start
        {
            start = before;
        }
        if let Some(stop) = self.ranges.remove(&end) {
            end = stop;
        }
        self.ranges.insert(start, end);
    }

    /// Removes a range from the committed bytes, which contain it.
    fn remove(&mut self, range: &Range<u64>) {
        let Some((start, end)) = self.ranges.range(..=range.start).next_back().map(|(start, end)| (*start, *end))
        else {
            return;
        };
        self.ranges.remove(&start);
        for (start, end) in [(start, range.start), (range.end, end)] {
            if start < end {
                self.ranges.insert(start, end);
            }
        }
    }

    /// Splits the block that has an offset in its middle.
    fn split_at<D: Device>(&mut self, heap: &Heap<D>, at: u64) -> Result<(), Error> {
        let Some((start, id)) = self.blocks.range(..at).next_back().map(|(start, id)| (*start, *id)) else {
            return Ok(());
        };
        if let Some(rest) = heap.split_allocated(id, at - start)? {
            self.blocks.insert(at, rest);
        }
        Ok(())
    }
}

impl<D: Device> AllocatorState<D> {
    /// The heap with the growable allocations of a stream in a pool. Creates it if there is none yet.
    fn growable_heap(
        &self,
        pool: Option<&Arc<PoolState>>,
        stream_state: &Arc<StreamState<D>>,
    ) -> Result<&Arc<Heap<D>>, Error> {
        let make = || {
            let _turn = self.config_turn.lock();
            let heap = self.add_heap(stream_state, true, None)?;
            heap.state.lock().policy.driver_pool = false;
            if let Some(pool) = pool {
                heap.set_pool(pool);
            }
            Some(heap.number)
        };
        let table = pool.map_or(&self.growables, |pool| &pool.growables);
        let number = table.get_or_add(stream_state.handle.raw(), make);
        Ok(number.and_then(|number| self.heaps.get(number)).ok_or(NO_HEAP)?)
    }
}

impl<D: Device> Heap<D> {
    /// Reserves addresses of so many bytes. Returns their segment, their start and its position among the blocks.
    fn reserve_exactly(&self, bytes: u64) -> hal::Result<(SegmentId, u64, u64)> {
        let memory = self.shared.device.virtual_memory()?;
        let start = self.shared.chunks.reserve_outside_excluded(memory, bytes)?;
        let id = self.add_range(memory, start, bytes)?.ok_or(NO_HEAP)?;
        // The end of the addresses lowers it again.
        self.shared.chunks.ranges.fetch_add(1, Relaxed);
        let place = self.state.lock().blocks.place_of(id).ok_or(NO_HEAP)?;
        Ok((id, start.address(), place))
    }

    /// Waits until the bytes of a request have left. Returns `false` if nothing was in the way, or if it must not wait.
    fn wait_for_place(&self, place: u64, request: Request) -> hal::Result<bool> {
        let is_free = || self.state.lock().blocks.run_at(place, request.requested).is_some();
        if is_free() || self.shared.settings.never_block.load(Relaxed) || self.stream_state.is_capturing() {
            return Ok(false);
        }
        self.all_fences().iter().try_for_each(|fence| fence.wait())?;
        self.process_events()?;
        self.wait_and_unmap()?;
        Ok(true)
    }

    /// Splits a block of more than `bytes`. Returns the second part, which has the same users and the same stack.
    fn split_allocated(&self, id: BlockId, bytes: u64) -> hal::Result<Option<BlockId>> {
        let mut state = self.state.lock();
        if state.blocks.blocks[id].bytes() <= bytes {
            return Ok(None);
        }
        let rest = state.blocks.split_allocated(id, bytes).ok_or(NO_HEAP)?;
        if let Some(uses) = state.uses.get(&id) {
            let copy = StreamUses { users: uses.users.clone(), ..*uses };
            state.uses.insert(rest, copy);
        }
        let stack = state.stacks.of(id);
        state.stacks.set(rest, stack);
        self.counters.raise(Counted::Allocations, state.blocks.blocks[rest].kind, 1);
        drop(state);
        self.shared.peaks.note(&self.counters);
        Ok(Some(rest))
    }

    /// Frees blocks. Their next use waits on the device for the streams that use them, so that they are free at once.
    fn free_guarded(&self, ids: impl IntoIterator<Item = BlockId>) -> hal::Result<()> {
        let mut freed = Ok(());
        let free = |id| {
            if let Some(uses) = self.state.lock().uses.get_mut(&id) {
                uses.guarded = true;
            }
            // A callback that panics does not keep the other blocks.
            CallbackOutcome::of(|| freed = freed.and(self.free(id).end()))
        };
        drop(ids.into_iter().map(free).fold(CallbackOutcome::default(), CallbackOutcome::and));
        freed
    }
}
