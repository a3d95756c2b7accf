//! A heap of a sleeping pool: blocks without memory, at reserved addresses.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device, DevicePtr, ErrorKind, VirtualMemory};

use crate::blocks::{Block, BlockState, Chunk};
use crate::heap::Heap;
use crate::observe::callbacks::TraceAction;
use crate::stats::Counted;
use crate::stream_state::StreamState;

impl<D: Device> Heap<D> {
    /// Sets whether the heap rejects requests because its pool sleeps.
    pub(crate) fn set_asleep(&self, asleep: bool) {
        self.state.lock().asleep = asleep;
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.state.lock().asleep
    }

    /// Bytes of chunks that currently have no memory.
    pub(crate) fn slept(&self) -> u64 {
        self.elastic.as_ref().map_or(0, |elastic| elastic.slept.load(Relaxed))
    }

    /// Returns every chunk, with the addresses in it whose contents must be kept: those in use, or all if `whole`.
    pub(crate) fn contents(&self, whole: bool) -> Vec<(Chunk, Vec<Range<u64>>)> {
        let state = self.lock_coalesced();
        let in_use = |block: &Block| matches!(block.state, BlockState::Allocated | BlockState::Pending);
        let used = state.blocks.iter().filter(|(_, block)| in_use(block));
        let mut used: Vec<_> = used.map(|(_, block)| block.address..block.end()).collect();
        let chunks = state.blocks.chunks();
        drop(state);
        used.sort_unstable_by_key(|range| range.start);
        let within =
            |whole_chunk: Range<u64>| if whole { vec![whole_chunk] } else { parts_within(&used, &whole_chunk) };
        chunks.into_iter().map(|chunk| (chunk, within(chunk.at..chunk.end()))).collect()
    }

    /// The streams that use allocated blocks besides the heap's own.
    pub(crate) fn users(&self) -> Vec<Arc<StreamState<D>>> {
        let mut users: Vec<_> = self.state.lock().uses.values().flat_map(|uses| uses.users.clone()).collect();
        // A fixed order, so that a run can be repeated call for call.
        users.sort_unstable_by_key(|user| user.number);
        users.dedup_by_key(|user| user.number);
        users
    }

    /// Counts a chunk whose memory was returned to the device.
    pub(crate) fn note_slept(&self, chunk: Chunk) {
        let Some(elastic) = &self.elastic else { return };
        let state = self.state.lock();
        elastic.slept.fetch_add(chunk.bytes, Relaxed);
        self.counters.lower(Counted::ReservedBytes, chunk.kind, chunk.bytes);
        drop(state);
        let totals = &self.shared.totals;
        totals.reserved.fetch_sub(chunk.bytes, Relaxed);
        totals.device_frees.fetch_add(1, Relaxed);
        self.tell(TraceAction::SegmentUnmap, chunk.at, chunk.bytes);
    }

    /// Counts a chunk that has memory again. The limit already includes its bytes.
    pub(crate) fn note_woken(&self, chunk: Chunk) {
        let Some(elastic) = &self.elastic else { return };
        self.shared.totals.device_allocs.fetch_add(1, Relaxed);
        let state = self.state.lock();
        elastic.slept.fetch_sub(chunk.bytes, Relaxed);
        self.counters.raise(Counted::ReservedBytes, chunk.kind, chunk.bytes);
        drop(state);
        self.shared.peaks.note(&self.counters);
        self.tell(TraceAction::SegmentMap, chunk.at, chunk.bytes);
    }

    /// Removes the idle chunks without memory. The device holds nothing for them.
    pub(crate) fn forget_idle_chunks(&self) {
        let Some(elastic) = &self.elastic else { return };
        let mut state = self.state.lock();
        let mut gone = Vec::new();
        for (chunk, block) in state.blocks.idle_chunks() {
            if self.shared.chunks.has_memory(chunk.id) {
                continue;
            }
            let Some(held) = state.blocks.hold(block, chunk.at, chunk.end()) else { continue };
            self.shared.index.set(chunk.at, chunk.bytes, None);
            state.blocks.remove_chunk(chunk.at);
            for held in held {
                state.blocks.abandon(held);
                state.blocks.become_unmapped(held.block);
            }
            elastic.slept.fetch_sub(chunk.bytes, Relaxed);
            gone.push(chunk.id);
        }
        self.flush_stats(&mut state.blocks);
        drop(state);
        for id in gone {
            self.shared.chunks.forget(id);
        }
    }

    pub(crate) fn address_ranges(&self) -> Vec<(DevicePtr, u64)> {
        let ranges = self.elastic.iter().map(|elastic| elastic.ranges.lock().clone());
        ranges.flatten().collect()
    }

    /// Releases an address range that will be reserved again. No other heap of the allocator gets it in between.
    ///
    /// # Safety
    ///
    /// 1. The range is one of [`address_ranges`](Self::address_ranges), and nothing is mapped in it.
    pub(crate) unsafe fn lose_addresses(&self, memory: &dyn VirtualMemory, range: (DevicePtr, u64)) -> hal::Result<()> {
        // This comes before the release, since the next reservation may return the range at once.
        self.shared.chunks.exclude_range(range);
        // SAFETY: 1. the caller's promise 1.
        if let Err(error) = unsafe { memory.release(range.0, range.1) } {
            self.shared.chunks.include_range(range);
            return Err(error);
        }
        // The heap releases its ranges when it is dropped. By then another owner may have reserved this one.
        if let Some(elastic) = &self.elastic {
            elastic.ranges.lock().retain(|known| *known != range);
        }
        Ok(())
    }

    /// Reserves a lost address range again. Fails if the addresses belong to another owner.
    pub(crate) fn regain_addresses(&self, memory: &dyn VirtualMemory, range: (DevicePtr, u64)) -> hal::Result<()> {
        let (start, bytes) = range;
        let found = memory.reserve(bytes, Some(start))?;
        if found != start {
            // SAFETY: 1. the range was just reserved, and no other code has its address.
            unsafe { memory.release(found, bytes) }?;
            return Err(hal::Error::new(ErrorKind::OutOfMemory, "reserve"));
        }
        self.note_range(start, bytes);
        self.shared.chunks.include_range(range);
        Ok(())
    }
}

/// The parts of `used`, in order of address, that lie in a range. Adjacent parts are merged.
pub(super) fn parts_within(used: &[Range<u64>], whole: &Range<u64>) -> Vec<Range<u64>> {
    let mut parts: Vec<Range<u64>> = Vec::new();
    let first = used.partition_point(|range| range.end <= whole.start);
    for range in &used[first..] {
        let (start, end) = (range.start.max(whole.start), range.end.min(whole.end));
        if start >= end {
            break;
        }
        match parts.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => parts.push(start..end),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_side_by_side_in_a_chunk_is_one_part() {
        let used = [0..4, 8..12, 12..14, 14..15, 20..22, 28..40, 40..44];
        assert_eq!(parts_within(&used, &(10..30)), [10..15, 20..22, 28..30]);
    }
}
