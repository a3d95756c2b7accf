//! The state of a sleeping pool: its chunks, their contents, and how they are unmapped and restored.

use std::collections::HashMap;
use std::mem::{self, ManuallyDrop};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::{io, slice};

use cachette_hal::{self as hal, Device, DevicePtr, VirtualMemory};

use crate::device_state::DeviceState;
use crate::error::Error;
use crate::fence::Fence;
use crate::heap::Heap;
use crate::sleep::heap::{Grant, SavedBytes, SleepingChunk, Stage};
use crate::sleep::staging::{StagingBuffer, StagingStore};
use crate::stream_state::StreamState;

/// Bytes of a batch: enough to keep the copy engine busy while the host unmaps the previous batch.
const BATCH: u64 = 256 << 20;

pub(crate) struct OffloadState<D: Device> {
    shared: Arc<DeviceState<D>>,
    entries: Vec<SleepingChunk<D>>,
    slabs: Vec<StagingBuffer<D>>,
    /// The stream of copies that may still read or write the slabs.
    copies: Option<Arc<StreamState<D>>>,
    /// Address ranges that were released so that the driver frees their memory. They must be reserved again.
    lost: Vec<Lost<D>>,
}

/// A range of addresses that a heap had to return: start and bytes.
type Lost<D> = (Arc<Heap<D>>, (DevicePtr, u64));

impl<D: Device> OffloadState<D> {
    /// Lists every chunk of `heaps`, still awake. Returns `None` if the host has too little memory for the contents.
    pub(super) fn plan(
        shared: &Arc<DeviceState<D>>,
        heaps: &[Arc<Heap<D>>],
        contents: Contents,
        whole: bool,
        store: &StagingStore<D>,
    ) -> Option<Self> {
        // Every chunk with the ranges that callers or graphs may still read.
        let mut chunks: Vec<_> =
            heaps.iter().flat_map(|heap| heap.contents(whole).into_iter().map(move |chunk| (heap, chunk))).collect();
        if contents == Contents::Discard {
            for (_, (_, used)) in &mut chunks {
                used.clear();
            }
        }
        let used = chunks.iter().flat_map(|(_, (_, used))| used);
        let slabs = store.take(shared, used.map(|range| range.end - range.start).sum())?;
        let mut room = StagingCursor { slabs: &slabs, used: 0 };
        let entries = chunks.into_iter().map(|(heap, (chunk, used))| {
            let saved = used.into_iter().flat_map(|range| room.take(range)).collect();
            SleepingChunk { heap: Arc::clone(heap), chunk, saved, stage: Stage::Filled }
        });
        let entries = entries.collect();
        Some(Self { shared: Arc::clone(shared), entries, slabs, copies: None, lost: Vec::new() })
    }

    pub(super) fn offloaded_bytes(&self) -> u64 {
        let away = self.entries.iter().filter(|entry| entry.stage == Stage::Released);
        away.map(|entry| entry.chunk.bytes).sum()
    }

    pub(super) fn saved(&self) -> u64 {
        self.entries.iter().flat_map(|entry| &entry.saved).map(|saved| saved.bytes as u64).sum()
    }

    /// Moves the contents to files in a folder. Returns the bytes of host memory that were freed.
    pub(super) fn spill(&mut self, folder: &Path, failed: &dyn Fn(io::Error) -> Error) -> Result<u64, Error> {
        // A copy of a failed wake may still read the slabs.
        self.settle()?;
        self.slabs.iter_mut().try_fold(0, |bytes, slab| Ok(bytes + slab.spill(folder, failed)?))
    }

    /// Reads the contents back from their files. A failure changes nothing.
    pub(super) fn read_back(&mut self) -> io::Result<()> {
        if self.saved() == 0 {
            return Ok(());
        }
        self.slabs.iter_mut().try_for_each(StagingBuffer::read_back)
    }

    /// Returns whether all contents of a range are kept.
    pub(super) fn keeps(&self, address: u64, bytes: usize) -> bool {
        self.parts(address, bytes).map(|part| part.bytes).sum::<usize>() == bytes
    }

    /// Copies kept contents from an address on. They are not in a file.
    pub(super) fn read(&self, address: u64, into: &mut [u8]) {
        for part in self.parts(address, into.len()) {
            let Ok(offset) = usize::try_from(part.at.address() - address) else { continue };
            // SAFETY: the part lies within the range, and its place in the slab has so many bytes, which were written.
            let bytes = unsafe { slice::from_raw_parts(part.host.as_ptr(), part.bytes) };
            into[offset..offset + part.bytes].copy_from_slice(bytes);
        }
    }

    /// The kept parts of a range.
    fn parts(&self, address: u64, bytes: usize) -> impl Iterator<Item = SavedBytes> + use<'_, D> {
        let wanted = address..address.saturating_add(bytes as u64);
        let saved = self.entries.iter().flat_map(|entry| &entry.saved);
        saved.flat_map(move |saved| saved.within(slice::from_ref(&wanted)).collect::<Vec<_>>())
    }

    /// Returns whether any chunk is asleep, or may still be copied.
    pub(super) fn is_asleep(&self) -> bool {
        let asleep = self.entries.iter().any(|entry| entry.stage < Stage::Filled);
        !self.lost.is_empty() || self.copies.is_some() || asleep
    }

    /// Returns the host memory to the store, unless a copy may still use it.
    pub(super) fn end(&mut self, store: &StagingStore<D>) {
        if self.settle().is_ok() {
            store.put_back(mem::take(&mut self.slabs));
        }
    }

    /// Removes chunks that their heap has removed, and freed contents. With `whole`, contents stay for graphs.
    pub(super) fn forget_freed(&mut self, whole: bool) {
        let contents = self.heaps().into_iter().flat_map(|heap| heap.contents(whole));
        let used: HashMap<_, _> = contents.map(|(chunk, used)| (chunk.at, (chunk, used))).collect();
        self.entries.retain_mut(|entry| match used.get(&entry.chunk.at) {
            Some((chunk, used)) if *chunk == entry.chunk => {
                entry.saved = entry.saved.iter().flat_map(|saved| saved.within(used)).collect();
                true
            }
            _ => false,
        });
    }

    /// Retries what the driver has refused, for a pool that no caller wakes: half-awake chunks and lost addresses.
    pub(super) fn settle_unused(&mut self) {
        self.release_partial();
        if let Ok(memory) = Arc::clone(&self.shared).device.virtual_memory() {
            let _ = self.regain_addresses(memory);
        }
    }

    /// Returns the memory of chunks that are half awake. No heap can release it.
    fn release_partial(&mut self) {
        if self.settle().is_err() && self.copies.is_some() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let Ok(memory) = shared.device.virtual_memory() else { return };
        let half_awake = Stage::Backed..Stage::Filled;
        for entry in self.entries.iter_mut().filter(|entry| half_awake.contains(&entry.stage)) {
            let _ = entry.offload(memory);
        }
    }

    fn heaps(&self) -> Vec<Arc<Heap<D>>> {
        let mut heaps: Vec<_> = self.entries.iter().map(|entry| Arc::clone(&entry.heap)).collect();
        heaps.dedup_by(|a, b| Arc::ptr_eq(a, b));
        heaps
    }

    /// Waits for every copy. After a failure the slabs may still be in use, unless another wait succeeded.
    fn settle(&mut self) -> hal::Result<()> {
        let Some(stream_state) = &self.copies else { return Ok(()) };
        let ended = stream_state.settle();
        if ended.is_ok() || ended.is_err_and(|failed| failed.is_over) {
            self.copies = None;
        }
        ended.map_err(|failed| failed.error)
    }

    /// Copies the contents to the host, and returns the memory to the device.
    pub(super) fn offload(&mut self, store: &StagingStore<D>, progress: &mut dyn FnMut(Progress)) -> hal::Result<()> {
        let shared = Arc::clone(&self.shared);
        let memory = shared.device.virtual_memory()?;
        let copies = Arc::clone(self.copies.insert(store.copies(&shared)?));
        let mut report = self.meter(progress);
        let (mut start, mut queued) = (0, None);
        while start < self.entries.len() || queued.is_some() {
            let (mut end, mut bytes) = (start, 0);
            while end < self.entries.len() && bytes < BATCH {
                bytes += self.entries[end].chunk.bytes;
                end += 1;
            }
            if self.saved() > 0 {
                let transfer = shared.device.transfer()?;
                self.entries[start..end].iter().try_for_each(|entry| entry.download(transfer, copies.handle))?;
            }
            let next = if start < end { Some((start..end, Fence::record(&copies)?)) } else { None };
            start = end;
            // The memory of each batch is released while the next one is copied.
            if let Some((batch, copied)) = mem::replace(&mut queued, next) {
                copied.wait()?;
                for entry in &mut self.entries[batch] {
                    entry.offload(memory)?;
                    report(entry.chunk.bytes);
                }
            }
        }
        // Each batch was waited for.
        self.copies = None;
        self.renew_addresses(memory)
    }

    /// Restores all memory and its contents. After a failure the memory is released again, if the driver permits it.
    pub(super) fn restore(&mut self, store: &StagingStore<D>, progress: &mut dyn FnMut(Progress)) -> hal::Result<()> {
        let shared = Arc::clone(&self.shared);
        let memory = shared.device.virtual_memory()?;
        self.regain_addresses(memory)?;
        let mut room = Grant::of(&shared, self.offloaded_bytes())?;
        let copies = Arc::clone(self.copies.insert(store.copies(&shared)?));
        let transfer = if self.saved() > 0 { Some(shared.device.transfer()?) } else { None };
        let mut report = self.meter(progress);
        let woken = self.entries.iter_mut().try_for_each(|entry| {
            entry.restore(memory, transfer, copies.handle, &mut room)?;
            report(entry.chunk.bytes);
            Ok(())
        });
        if let Err(error) = woken.and(self.settle()) {
            // Memory that a copy may still write to must stay, and the next wake continues from there. Otherwise the
            // memory is released again, since the contents are still on the host.
            self.release_partial();
            return Err(error);
        }
        self.entries.iter_mut().for_each(|entry| entry.stage = Stage::Filled);
        Ok(())
    }

    /// Reports progress each time the bytes of a chunk are done.
    fn meter<'a>(&self, progress: &'a mut dyn FnMut(Progress)) -> impl FnMut(u64) + use<'a, D> {
        let mut now = Progress { done: 0, total: self.entries.iter().map(|entry| entry.chunk.bytes).sum() };
        move |bytes| {
            now.done += bytes;
            progress(now);
        }
    }

    /// Renews the addresses, where the driver keeps memory that was mapped there until they are released.
    fn renew_addresses(&mut self, memory: &dyn VirtualMemory) -> hal::Result<()> {
        if memory.frees_under_reservation().is_ok() {
            return Ok(());
        }
        for heap in self.heaps() {
            for range in heap.address_ranges() {
                // SAFETY: 1. the range is the heap's, all of its chunks are unmapped, and no unmap of it is pending.
                unsafe { heap.lose_addresses(memory, range) }?;
                self.lost.push((Arc::clone(&heap), range));
            }
        }
        // If another owner has reserved some of them in the meantime, a wake retries.
        let _ = self.regain_addresses(memory);
        Ok(())
    }

    fn regain_addresses(&mut self, memory: &dyn VirtualMemory) -> hal::Result<()> {
        let mut regained = Ok(());
        self.lost.retain(|(heap, range)| {
            let found = heap.regain_addresses(memory, *range);
            regained = regained.and(found);
            found.is_err()
        });
        regained
    }
}

impl<D: Device> Drop for OffloadState<D> {
    fn drop(&mut self) {
        self.release_partial();
        // Slabs that a copy may still use are never freed.
        if self.settle().is_err() && self.copies.is_some() {
            let _ = ManuallyDrop::new(mem::take(&mut self.slabs));
        }
    }
}

/// Hands out places in slabs, in order.
struct StagingCursor<'a, D: Device> {
    slabs: &'a [StagingBuffer<D>],
    /// Used bytes of the first slab.
    used: usize,
}

impl<D: Device> StagingCursor<'_, D> {
    /// Returns places for the bytes of a range, in as many pieces as necessary. There is room for all.
    fn take(&mut self, range: Range<u64>) -> Vec<SavedBytes> {
        let mut pieces = Vec::new();
        let mut at = range.start;
        while at < range.end
            && let Some(slab) = self.slabs.first()
            && let Some(address) = DevicePtr::new(at)
        {
            let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            let bytes = left.min(slab.bytes() - self.used);
            // SAFETY: the slab has more than `used` bytes.
            let host = unsafe { slab.start.add(self.used) };
            pieces.push(SavedBytes { at: address, bytes, host });
            at += bytes as u64;
            self.used += bytes;
            if self.used == slab.bytes() {
                (self.slabs, self.used) = (&self.slabs[1..], 0);
            }
        }
        pieces
    }
}

/// What happens to the contents of memory during sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// They are kept in page-locked host memory, and restored when the pool wakes.
    Keep,
    /// They are lost. The contents are undefined when the pool wakes.
    Discard,
}

/// The result of a sleep. All zero if the pool already slept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SleepStats {
    /// Bytes released to the device.
    pub released: u64,
    /// Bytes that are kept in host memory.
    pub saved: u64,
}

/// The progress of a sleep or a wake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Completed bytes.
    pub done: u64,
    /// Total bytes.
    pub total: u64,
}
