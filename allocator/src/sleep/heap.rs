//! The heaps of a sleeping pool, with blocks without memory at reserved addresses, and the progress of their chunks.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device, DevicePtr, ErrorKind, StreamRef, Transfer, VirtualMemory};

use crate::blocks::Chunk;
use crate::device_state::DeviceState;
use crate::elastic::chunk_table::pointer;
use crate::heap::Heap;
use crate::observe::callbacks::{Notice, TraceAction};
use crate::stats::Counted;
use crate::stream_state::StreamState;

/// Contents of a chunk, and where they are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct SavedBytes {
    pub(super) at: DevicePtr,
    pub(super) bytes: usize,
    pub(super) host: NonNull<u8>,
}

impl SavedBytes {
    /// Returns the parts that lie in `used`, whose ranges are in order of address.
    pub(super) fn within(self, used: &[Range<u64>]) -> impl Iterator<Item = Self> + use<> {
        let start = self.at.address();
        parts_within(used, &(start..start + self.bytes as u64)).into_iter().filter_map(move |part| {
            let offset = part.start - start;
            let bytes = usize::try_from(part.end - part.start).ok()?;
            // SAFETY: the part begins inside the place that the bytes have in their slab.
            let host = unsafe { self.host.add(usize::try_from(offset).ok()?) };
            Some(Self { at: self.at.add(offset), bytes, host })
        })
    }
}

/// Bytes under the limit that are reserved for a wake and not used yet. A drop returns them.
pub(super) struct Grant<D: Device> {
    shared: Arc<DeviceState<D>>,
    left: u64,
}

impl<D: Device> Grant<D> {
    /// Reserves `bytes` at once, so that a wake does not fail half-way.
    pub(super) fn of(shared: &Arc<DeviceState<D>>, bytes: u64) -> hal::Result<Self> {
        let room = shared.reserve(bytes).ok_or(hal::Error::new(ErrorKind::OutOfMemory, "wake"))?;
        // A progress callback may allocate memory in the meantime, so the room counts as held at once.
        room.keep(bytes);
        Ok(Self { shared: Arc::clone(shared), left: bytes })
    }
}

impl<D: Device> Drop for Grant<D> {
    fn drop(&mut self) {
        self.shared.totals.reserved.fetch_sub(self.left, Relaxed);
    }
}

/// The progress of a chunk from sleep to waking. Each stage builds on the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Released,
    /// It has memory that is not mapped.
    Backed,
    /// The memory is mapped at the chunk's address.
    Mapped,
    /// The device has access. Copies of the contents may be in progress.
    Granted,
    Filled,
}

pub(super) struct SleepingChunk<D: Device> {
    pub(super) heap: Arc<Heap<D>>,
    pub(super) chunk: Chunk,
    pub(super) saved: Vec<SavedBytes>,
    pub(super) stage: Stage,
}

// SAFETY: only the owner of the `OffloadState` follows pointers into slabs, and that state owns both.
unsafe impl<D: Device> Send for SleepingChunk<D> {}

impl<D: Device> SleepingChunk<D> {
    pub(super) fn download(&self, transfer: &dyn Transfer, stream: StreamRef) -> hal::Result<()> {
        for saved in &self.saved {
            // SAFETY: 1. the caller made the stream. 3. the range is mapped, and its pool takes no requests. 4. The
            // `OffloadState` keeps the slab until the copy has ended.
            unsafe { transfer.download(saved.host.as_ptr(), saved.at, saved.bytes, stream) }?;
        }
        Ok(())
    }

    /// Returns the memory to the device. After a failure the caller can try again, or wake the chunk.
    pub(super) fn offload(&mut self, memory: &dyn VirtualMemory) -> hal::Result<()> {
        let (at, bytes) = (pointer(self.chunk.at)?, self.chunk.bytes);
        if self.stage >= Stage::Mapped {
            self.stage = Stage::Mapped;
            self.heap.shared.callbacks.notice(Notice::Unmapping { address: self.chunk.at, bytes });
            // SAFETY: 2. all streams were waited for, the pool takes no requests, and the copies have ended.
            unsafe { memory.unmap(at, bytes) }?;
            self.stage = Stage::Backed;
        }
        if self.stage == Stage::Backed {
            self.heap.shared.chunks.suspend(memory, self.chunk.id)?;
            self.stage = Stage::Released;
            self.heap.note_slept(self.chunk);
        }
        Ok(())
    }

    /// Creates memory again, and queues copies of the contents from the host. After a failure the caller can try again,
    /// or send the chunk away. Once the copies have ended, the caller sets [`Stage::Filled`].
    pub(super) fn restore(
        &mut self,
        memory: &dyn VirtualMemory,
        transfer: Option<&dyn Transfer>,
        stream: StreamRef,
        room: &mut Grant<D>,
    ) -> hal::Result<()> {
        let Chunk { id, at, bytes, .. } = self.chunk;
        let shared = Arc::clone(&self.heap.shared);
        if self.stage == Stage::Released {
            let rdma = self.heap.is_registered() || shared.settings.config().gpu_direct_rdma();
            shared.chunks.resume(memory, id, bytes, rdma)?;
            self.stage = Stage::Backed;
            room.left -= bytes;
            self.heap.note_woken(self.chunk);
        }
        if self.stage == Stage::Backed {
            shared.chunks.map(memory, self.chunk)?;
            self.stage = Stage::Mapped;
        }
        if self.stage == Stage::Mapped {
            // SAFETY: 2. the call grants access and removes none.
            unsafe { memory.set_access(pointer(at)?, bytes, &shared.access()) }?;
            self.stage = Stage::Granted;
            shared.callbacks.notice(Notice::Mapped { address: at, bytes });
        }
        if self.stage == Stage::Granted {
            for saved in &self.saved {
                let Some(transfer) = transfer else { break };
                // SAFETY: 1. the caller made the stream. 3. the range is mapped, and nothing else uses it yet. 4. The
                // `OffloadState` keeps the slab until the copy has ended.
                unsafe { transfer.upload(saved.at, saved.host.as_ptr(), saved.bytes, stream) }?;
            }
        }
        Ok(())
    }
}

impl<D: Device> Heap<D> {
    /// Returns whether the heap rejects requests because its pool sleeps.
    pub(crate) fn is_asleep(&self) -> bool {
        self.state.lock().asleep
    }

    /// Bytes of chunks that currently have no memory.
    pub(crate) fn slept(&self) -> u64 {
        self.elastic().map_or(0, |elastic| elastic.slept.load(Relaxed))
    }

    /// Returns every chunk, with the addresses in it whose contents must be kept: those in use, or all if `whole`.
    pub(crate) fn contents(&self, whole: bool) -> Vec<(Chunk, Vec<Range<u64>>)> {
        let state = self.lock_coalesced();
        let used = state.blocks.iter().filter(|(_, block)| block.is_in_use());
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
        let Some(elastic) = self.elastic() else { return };
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
        let Some(elastic) = self.elastic() else { return };
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
        let Some(elastic) = self.elastic() else { return };
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
        let ranges = self.elastic().into_iter().map(|elastic| elastic.ranges.lock().clone());
        ranges.flatten().collect()
    }

    /// Releases an address range that will be reserved again. No other heap of the allocator gets it in between.
    ///
    /// # Safety
    ///
    /// 1. The range is one of [`address_ranges`](Self::address_ranges), and nothing is mapped in it.
    pub(crate) unsafe fn lose_addresses(&self, memory: &dyn VirtualMemory, range: (DevicePtr, u64)) -> hal::Result<()> {
        // This comes before the release, since the next reservation may return the range at once.
        self.shared.chunks.wanted.lock().push(range);
        // SAFETY: 1. the caller's promise 1.
        if let Err(error) = unsafe { memory.release(range.0, range.1) } {
            self.shared.chunks.include_range(range);
            return Err(error);
        }
        // The heap releases its ranges when it is dropped. By then another owner may have reserved this one.
        if let Some(elastic) = self.elastic() {
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
fn parts_within(used: &[Range<u64>], whole: &Range<u64>) -> Vec<Range<u64>> {
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
