//! Restores segments and blocks at given addresses: all of them or none.
//!
//! 1. Reserve the addresses of every segment. The driver may ignore the wish and reserve others; then nothing is kept.
//! 2. Create memory in few large chunks and map it, with the steps that obtain memory for any request.
//! 3. Allocate the blocks in the segments.
//!
//! The cost is linear in the chunks and blocks, but for a search in a tree for each block.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{Device, DevicePtr, ErrorKind, VirtualMemory};

use super::{AddressRange, Addresses, AddressesProblem, SavedCard, SavedPlace, joined};
use crate::address_index::SegmentRef;
use crate::allocation::{Allocation, Answer};
use crate::allocator::Allocator;
use crate::allocator::allocator_state::AllocatorState;
use crate::blocks::{Chunk, ReservedBlock, SegmentId};
use crate::elastic::chunk_table::pointer;
use crate::elastic::map::{self, Unfilled};
use crate::elastic::{self, Fill, Wanted};
use crate::error::{Error, NO_HEAP};
use crate::heap::{Heap, Request};
use crate::label::Label;
use crate::observe::callbacks::{CallbackOutcome, TraceAction};
use crate::observe::history::Level;
use crate::pool::Pool;
use crate::retry::Retry;
use crate::size::SegmentKind;
use crate::stats::Counted;
use crate::stream::Stream;

/// The largest chunk. Each costs some driver calls, whatever its size, and the memory of a graph stays together.
const LARGEST_CHUNK: u64 = 512 << 20;
/// The most bytes of one segment.
const LONGEST_SEGMENT: u64 = 1 << 40;

impl<D: Device> Allocator<D> {
    /// Creates a pool with memory at saved addresses, and allocates the saved blocks, in order of address.
    ///
    /// All memory belongs to `stream`, in which graphs are to be launched; [`Addresses::blocks`] has the stream of each
    /// block. The contents are undefined. No memory leaves the pool before its last user is gone. After an error the
    /// allocator is as before.
    pub fn restore_addresses(
        &self,
        saved: &Addresses,
        stream: &Stream<D>,
    ) -> Result<(Pool<D>, Vec<Allocation<D>>), Error> {
        let inner = self.inner();
        inner.shared.origin.check()?;
        let page = elastic::page(inner.shared.device.virtual_memory()?);
        saved.card.check(&SavedCard::of(inner.shared.device.info(), page))?;
        let pool = self.create_capture_pool();
        pool.restore_segments(&saved.segments, stream)?;
        let heap = inner.heap_of_stream_state(&pool.state, &stream.stream_state)?;
        let _gathered = inner.shared.history.gather(Level::State);
        let mut blocks = Vec::with_capacity(saved.blocks.len());
        for block in &saved.blocks {
            blocks.push(inner.allocate_saved(heap, block).ok_or(NO_HEAP)?);
        }
        Ok((pool, blocks))
    }
}

impl<D: Device> Pool<D> {
    /// Adds free memory at exactly these addresses, for requests of `stream`. All of it, or none after an error.
    ///
    /// No memory leaves the pool before its last user is gone, since graphs may use it.
    pub fn restore_segments(&self, segments: &[AddressRange], stream: &Stream<D>) -> Result<(), Error> {
        let inner = self.allocator().inner();
        inner.shared.origin.check()?;
        let page = elastic::page(inner.shared.device.virtual_memory()?);
        check(segments, page)?;
        if !Arc::ptr_eq(&stream.stream_state.shared, &inner.shared) {
            return Err(Error::ForeignStream);
        }
        let segments = joined(segments.iter().copied());
        // A thread that puts the pool to sleep waits for the end of the restore.
        let _awake = self.state.stay_awake()?;
        let heap = inner.heap_of_stream_state(&self.state, &stream.stream_state)?;
        heap.follow_setting();
        inner.release_unneeded(&segments);
        let requested = segments.iter().map(|segment| segment.bytes).sum();
        let _gathered = inner.shared.history.gather(Level::All);
        let wanted = Wanted { request: Request { requested, label: Label::OWNED }, place: None };
        Retry::new(inner, heap, wanted).fill(|| heap.restore_segments(inner, &segments))?;
        self.keep();
        inner.note_launch(&self.state, &stream.stream_state);
        Ok(())
    }
}

/// Checks that segments are whole pages, in order, and do not overlap.
fn check(segments: &[AddressRange], page: u64) -> Result<(), AddressesProblem> {
    let mut after = page;
    for &AddressRange { base, bytes } in segments {
        let whole = base.is_multiple_of(page) && bytes.is_multiple_of(page) && bytes > 0;
        if !whole || base < after || bytes > LONGEST_SEGMENT || base.checked_add(bytes).is_none() {
            return Err(AddressesProblem::Unusable { base, bytes, page });
        }
        after = base + bytes;
    }
    Ok(())
}

impl<D: Device> AllocatorState<D> {
    /// Releases what this process has at the addresses of segments and does not need: idle memory outside used pools,
    /// and addresses without memory, which heaps keep for later requests.
    fn release_unneeded(&self, segments: &[AddressRange]) {
        let overlaps = |start: u64, bytes: u64| {
            let first = segments.partition_point(|segment| segment.end() <= start);
            segments.get(first).is_some_and(|segment| segment.base < start + bytes)
        };
        for heap in self.heaps.iter() {
            let in_the_way = |(start, bytes): &(DevicePtr, u64)| overlaps(start.address(), *bytes);
            if heap.address_ranges().iter().any(in_the_way) {
                // Memory that the device does not take back now stays. Then its addresses are taken.
                let _ = match heap.pool() {
                    Some(pool) if pool.is_used() => Ok(0),
                    Some(pool) => self.empty_pool(&pool),
                    None => heap.empty().map_err(Error::from),
                };
                if !self.shared.settings.never_block.load(Relaxed) && !heap.stream_state.is_capturing() {
                    let _ = heap.wait_and_unmap();
                }
                // A pool that wakes needs the addresses of its heaps.
                if !self.is_growable(heap) && !heap.is_asleep() {
                    heap.state.lock().blocks.close_unmapped(|segment| overlaps(segment.base, segment.bytes));
                }
            }
            // This also retries what the driver refused to release before.
            heap.release_closed_addresses();
        }
    }

    /// Whether a heap has growable allocations, whose addresses are needed also without memory.
    fn is_growable(&self, heap: &Heap<D>) -> bool {
        let pool = heap.pool();
        let table = pool.as_ref().map_or(&self.growables, |pool| &pool.growables);
        table.get(heap.stream_state.handle.raw()) == Some(heap.number)
    }

    /// Allocates a saved block. Returns `None` if its addresses are not free, or if the tables are full.
    fn allocate_saved(&self, heap: &Arc<Heap<D>>, saved: &SavedPlace) -> Option<Allocation<D>> {
        let home = self.homes(saved.address).find(|home| home.heap == heap.number)?;
        let request = Request { requested: saved.requested, label: Label::OWNED };
        let allocated = heap.allocate_block(heap.state.lock(), request, |blocks, _| {
            blocks.allocate_in(home.segment, saved.address, saved.bytes)
        })?;
        Some(Allocation::of_block(heap, &allocated, saved.requested))
    }
}

/// Segments of a heap whose addresses are reserved, and that have no memory. A drop ends them.
struct NewSegments<'a, D: Device> {
    heap: &'a Heap<D>,
    ids: Vec<SegmentId>,
}

impl<D: Device> Drop for NewSegments<'_, D> {
    fn drop(&mut self) {
        if self.ids.is_empty() {
            return;
        }
        let mut state = self.heap.state.lock();
        for id in &self.ids {
            state.blocks.close_addresses(*id);
        }
        drop(state);
        self.heap.release_closed_addresses();
    }
}

impl<D: Device> Heap<D> {
    /// Adds segments at given addresses, with memory. Returns `false` if the limit or the device has too little memory.
    fn restore_segments(&self, inner: &AllocatorState<D>, segments: &[AddressRange]) -> Result<bool, Error> {
        let _alone = self.growth.lock();
        if !self.is_elastic() {
            return Err(AddressesProblem::NotElastic.into());
        }
        let _relaxed = self.shared.relax_capture();
        let memory = self.shared.device.virtual_memory()?;
        let mut new = NewSegments { heap: self, ids: Vec::with_capacity(segments.len()) };
        let (filled, told) = map::in_turn(&self.shared, || {
            for segment in segments {
                new.ids.push(self.reserve_at(inner, memory, *segment)?);
            }
            self.fill_new(memory, segments, &new.ids)
        });
        let outcome = match filled {
            Ok(Some(outcome)) => outcome.and(told),
            Ok(None) => return Ok(false),
            Err(error) => return Err(error),
        };
        new.ids.clear();
        drop(new);
        drop(outcome);
        Ok(true)
    }

    /// Reserves exactly the addresses of a segment.
    fn reserve_at(
        &self,
        inner: &AllocatorState<D>,
        memory: &dyn VirtualMemory,
        segment: AddressRange,
    ) -> Result<SegmentId, Error> {
        let AddressRange { base, bytes } = segment;
        let taken = || AddressesProblem::Taken { start: base, end: segment.end(), holder: inner.holder_of(segment) };
        // A sleeping pool may have had to release addresses that it needs again.
        if self.shared.chunks.is_wanted(base, bytes) {
            return Err(taken().into());
        }
        let found = memory.reserve(bytes, Some(pointer(base)?))?;
        if found.address() != base {
            self.give_back(found, bytes);
            return Err(taken().into());
        }
        let id = self.add_range(memory, found, bytes)?.ok_or(NO_HEAP)?;
        // The end of the addresses lowers it again.
        self.shared.chunks.ranges.fetch_add(1, Relaxed);
        Ok(id)
    }

    /// Maps new memory in segments without any, as free blocks. Returns `None` if there is too little.
    fn fill_new(
        &self,
        memory: &dyn VirtualMemory,
        segments: &[AddressRange],
        ids: &[SegmentId],
    ) -> Result<Option<CallbackOutcome>, Error> {
        let bytes = segments.iter().map(|segment| segment.bytes).sum();
        let Some(reservation) = self.shared.reserve(bytes) else { return Ok(None) };
        let mut place = self.hold_whole(ids).ok_or(NO_HEAP)?;
        let largest = if memory.mixes_sizes().is_ok() { LARGEST_CHUNK } else { elastic::page(memory) };
        let fills: Vec<Fill> = segments.iter().flat_map(|segment| chunks_of(*segment, largest)).collect();
        let totals = &self.shared.totals;
        match map::fill(&self.shared, &fills, SegmentKind::Large, self.is_registered(), |_| None) {
            Ok(filled) => {
                reservation.keep(bytes);
                totals.device_allocs.fetch_add(filled.chunks.len() as u64, Relaxed);
                Ok(Some(self.add_filled(place, &filled.chunks, bytes)))
            }
            Err(Unfilled { error, left, .. }) => {
                // Memory that the device did not take back counts as allocated, so that its later release balances.
                totals.device_allocs.fetch_add(left.len() as u64, Relaxed);
                reservation.keep(left.iter().map(|left| left.chunk.bytes).sum());
                self.leave_mapped(&mut place, &left);
                self.state.lock().blocks.put_back(place);
                if error.kind() == ErrorKind::OutOfMemory { Ok(None) } else { Err(error.into()) }
            }
        }
    }

    /// Holds all blocks of new segments. Returns `None` if the tables are full; then nothing is held.
    fn hold_whole(&self, ids: &[SegmentId]) -> Option<Vec<ReservedBlock>> {
        let mut state = self.state.lock();
        let mut place = Vec::with_capacity(ids.len());
        for id in ids {
            let held = state.blocks.hold_segment(*id);
            let Some(held) = held else {
                state.blocks.put_back(mem::take(&mut place));
                return None;
            };
            place.extend(held);
        }
        Some(place)
    }

    /// Adds the chunks of held blocks, which become free.
    fn add_filled(&self, place: Vec<ReservedBlock>, chunks: &[Chunk], bytes: u64) -> CallbackOutcome {
        let mut state = self.state.lock();
        let mut held = place.iter().peekable();
        for chunk in chunks {
            while held.next_if(|held| state.blocks.blocks[held.block].end() <= chunk.at).is_some() {}
            let Some(around) = held.peek() else { break };
            let home = SegmentRef { heap: self.number, segment: state.blocks.blocks[around.block].segment };
            state.blocks.add_chunk(*chunk);
            self.shared.index.set(chunk.at, chunk.bytes, Some(home));
            state.note_gain(TraceAction::SegmentMap, chunk.at, chunk.bytes);
        }
        state.blocks.free_held(place);
        self.counters.raise(Counted::ReservedBytes, SegmentKind::Large, bytes);
        self.flush_stats(&mut state.blocks);
        drop(state);
        self.shared.peaks.note(&self.counters);
        let told = chunks.iter().map(|chunk| self.tell(TraceAction::SegmentMap, chunk.at, chunk.bytes));
        told.fold(CallbackOutcome::default(), CallbackOutcome::and)
    }
}

/// The ranges of one segment, each for a chunk.
fn chunks_of(segment: AddressRange, largest: u64) -> impl Iterator<Item = Fill> {
    let starts = (segment.base..segment.end()).step_by(usize::try_from(largest).unwrap_or(usize::MAX));
    starts.map(move |at| Fill { at, bytes: largest.min(segment.end() - at), reused: None })
}
