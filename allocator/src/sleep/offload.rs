//! The state of a sleeping pool: its chunks, their contents, and how they are unmapped and restored.

use std::collections::HashMap;
use std::mem::{self, ManuallyDrop};
use std::ops::Range;
use std::sync::Arc;

use cachette_hal::{self as hal, Device, DevicePtr, VirtualMemory};

use crate::device_state::DeviceState;
use crate::elastic::chunk_table::memory_of;
use crate::fence::Fence;
use crate::heap::Heap;
use crate::sleep::chunk::{Grant, SavedBytes, SleepingChunk};
use crate::sleep::staging::{StagingBuffer, StagingStore};
use crate::sleep::{Contents, Progress};
use crate::stream_state::StreamState;

/// Bytes that are copied before the next are queued behind them: enough to keep the copy engine busy while the host
/// unmaps what is done.
const BATCH: u64 = 256 << 20;

#[derive(Debug)]
pub(crate) struct OffloadState<D: Device> {
    shared: Arc<DeviceState<D>>,
    entries: Vec<SleepingChunk<D>>,
    slabs: Vec<StagingBuffer<D>>,
    /// The stream of copies that may still read or write the slabs.
    copies: Option<Arc<StreamState<D>>>,
    /// Ranges of addresses that had to be given up so that their memory came free, and are wanted again.
    lost: Vec<Lost<D>>,
}

/// A range of addresses that a heap had to return: start and bytes.
type Lost<D> = (Arc<Heap<D>>, (DevicePtr, u64));

impl<D: Device> OffloadState<D> {
    /// Everything that `heaps` hold, still awake; `None` if the host has too little memory for the contents.
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
            SleepingChunk::new(Arc::clone(heap), chunk, saved)
        });
        let entries = entries.collect();
        Some(Self { shared: Arc::clone(shared), entries, slabs, copies: None, lost: Vec::new() })
    }

    pub(super) fn bytes_away(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.is_away()).map(|entry| entry.chunk.bytes).sum()
    }

    /// Bytes of contents that are kept.
    pub(super) fn saved(&self) -> u64 {
        self.entries.iter().flat_map(|entry| &entry.saved).map(|saved| saved.bytes as u64).sum()
    }

    /// Whether any of it is asleep, or may still be copied.
    pub(super) fn is_asleep(&self) -> bool {
        !self.lost.is_empty() || self.copies.is_some() || self.entries.iter().any(SleepingChunk::is_asleep)
    }

    /// Gives the host memory back to the store, unless a copy may still use it.
    pub(super) fn end(&mut self, store: &StagingStore<D>) {
        if self.settle().is_ok() {
            store.put_back(mem::take(&mut self.slabs));
        }
    }

    /// Forgets chunks that their heap forgot, and contents that were freed; with `whole`, for graphs, contents stay.
    pub(super) fn forget_freed(&mut self, whole: bool) {
        let contents = self.heaps().into_iter().flat_map(|heap| heap.contents(whole));
        let used: HashMap<_, _> = contents.map(|(chunk, used)| (chunk.at, (chunk, used))).collect();
        self.entries.retain_mut(|entry| match used.get(&entry.chunk.at) {
            Some((chunk, used)) if *chunk == entry.chunk => {
                entry.keep_only(used);
                true
            }
            _ => false,
        });
    }

    fn heaps(&self) -> Vec<Arc<Heap<D>>> {
        let mut heaps: Vec<_> = self.entries.iter().map(|entry| Arc::clone(&entry.heap)).collect();
        heaps.dedup_by(|a, b| Arc::ptr_eq(a, b));
        heaps
    }

    /// The stream of copies, from now on in use.
    fn begin_copies(&mut self, store: &StagingStore<D>) -> hal::Result<Arc<StreamState<D>>> {
        Ok(Arc::clone(self.copies.insert(store.copies(&self.shared)?)))
    }

    /// Waits for every copy. After a failure the slabs may still be in use, unless another wait succeeded.
    fn settle(&mut self) -> hal::Result<()> {
        let Some(stream_state) = &self.copies else { return Ok(()) };
        match stream_state.settle() {
            Err(failed) if !failed.is_over => Err(failed.error),
            ended => {
                self.copies = None;
                ended.map_err(|failed| failed.error)
            }
        }
    }

    /// Copies the contents to the host, and takes the memory away.
    pub(super) fn send_away(&mut self, store: &StagingStore<D>, progress: &mut dyn FnMut(Progress)) -> hal::Result<()> {
        let shared = Arc::clone(&self.shared);
        let memory = memory_of(&shared.device)?;
        let copies = self.begin_copies(store)?;
        let mut meter = Meter { progress, now: Progress { done: 0, total: self.total() } };
        let mut queued: Option<(Range<usize>, Fence<D>)> = None;
        for batch in self.batches() {
            if self.saves() {
                let transfer = shared.device.transfer()?;
                let mut entries = self.entries[batch.clone()].iter();
                entries.try_for_each(|entry| entry.download(transfer, copies.handle()))?;
            }
            let fence = Fence::record(&copies)?;
            if let Some(before) = queued.replace((batch, fence)) {
                self.unmap(before, memory, &mut meter)?;
            }
        }
        if let Some(last) = queued {
            self.unmap(last, memory, &mut meter)?;
        }
        // Each batch was waited for.
        self.copies = None;
        self.renew_addresses(memory)
    }

    fn unmap(
        &mut self,
        (batch, copied): (Range<usize>, Fence<D>),
        memory: &dyn VirtualMemory,
        meter: &mut Meter<'_>,
    ) -> hal::Result<()> {
        copied.wait()?;
        for entry in &mut self.entries[batch] {
            entry.send_away(memory)?;
            meter.add(entry.chunk.bytes);
        }
        Ok(())
    }

    /// Gets memory for all again, with its contents; after a failure it is taken away again, if the driver can.
    pub(super) fn bring_back(
        &mut self,
        store: &StagingStore<D>,
        progress: &mut dyn FnMut(Progress),
    ) -> hal::Result<()> {
        let shared = Arc::clone(&self.shared);
        let memory = memory_of(&shared.device)?;
        self.regain_addresses(memory)?;
        let mut room = Grant::of(&shared, self.bytes_away())?;
        let copies = self.begin_copies(store)?;
        let transfer = if self.saves() { Some(shared.device.transfer()?) } else { None };
        let mut meter = Meter { progress, now: Progress { done: 0, total: self.total() } };
        let woken = self.entries.iter_mut().try_for_each(|entry| {
            entry.bring_back(memory, transfer, copies.handle(), &mut room)?;
            meter.add(entry.chunk.bytes);
            Ok(())
        });
        if let Err(error) = woken.and(self.settle()) {
            self.take_back(memory);
            return Err(error);
        }
        self.entries.iter_mut().for_each(SleepingChunk::note_filled);
        Ok(())
    }

    /// Takes memory away again that waking has got, as far as the driver lets it. The contents are still on the host.
    fn take_back(&mut self, memory: &dyn VirtualMemory) {
        // What a copy may still write to must stay; the next call to wake goes on from there.
        let _ = self.settle();
        if self.copies.is_some() {
            return;
        }
        let half_awake = |entry: &&mut SleepingChunk<D>| entry.is_asleep() && !entry.is_away();
        for entry in self.entries.iter_mut().filter(half_awake) {
            let _ = entry.send_away(memory);
        }
    }

    fn total(&self) -> u64 {
        self.entries.iter().map(|entry| entry.chunk.bytes).sum()
    }

    fn saves(&self) -> bool {
        self.entries.iter().any(|entry| !entry.saved.is_empty())
    }

    /// The entries in batches of about as many bytes.
    fn batches(&self) -> Vec<Range<usize>> {
        let mut batches = Vec::new();
        let (mut start, mut bytes) = (0, 0);
        for (index, entry) in self.entries.iter().enumerate() {
            bytes += entry.chunk.bytes;
            if bytes >= BATCH || index + 1 == self.entries.len() {
                batches.push(start..index + 1);
                (start, bytes) = (index + 1, 0);
            }
        }
        batches
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
        // What another owner has got meanwhile, waking tries to get again.
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
        // Slabs that a copy may still use are left to the process.
        if self.settle().is_err() && self.copies.is_some() {
            let _ = ManuallyDrop::new(mem::take(&mut self.slabs));
        }
    }
}

struct Meter<'a> {
    progress: &'a mut dyn FnMut(Progress),
    now: Progress,
}

impl Meter<'_> {
    fn add(&mut self, bytes: u64) {
        self.now.done += bytes;
        (self.progress)(self.now);
    }
}

/// Places in slabs, handed out in order.
struct StagingCursor<'a, D: Device> {
    slabs: &'a [StagingBuffer<D>],
    /// Of the first slab.
    used: usize,
}

impl<D: Device> StagingCursor<'_, D> {
    /// Places for the bytes of a range, in as many pieces as it takes; there is room for all.
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
