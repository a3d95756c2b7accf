//! The physical memory of every chunk of an allocator.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use cachette_hal::{self as hal, Backing, DevicePtr, ErrorKind, Sharing, VirtualMemory};

use crate::blocks::{Chunk, ChunkId};
use crate::sync::Mutex;

/// The physical memory of every chunk of an allocator, and its total size.
#[derive(Default)]
pub(crate) struct ChunkTable {
    table: Mutex<ChunkSlots>,
    /// Held [in the turn](crate::elastic::map::in_turn) of a request.
    pub(crate) turns: Mutex<()>,
    /// Bytes of all chunks. Relaxed, since no reader combines it with another value.
    pub(crate) bytes: AtomicU64,
    /// Number of address ranges reserved so far. Later ranges are smaller.
    pub(crate) ranges: AtomicU32,
    /// The chunks created or moved, and the requests that pay for them.
    spending: Mutex<Spending>,
    /// The highest number of bytes in use at once. Relaxed, as `bytes`.
    use_peak: AtomicU64,
    /// How many of the [`WAYS`] the driver has refused.
    refused: AtomicUsize,
    /// Whether any chunk was ever single. Relaxed, since the table records which.
    pub(crate) any_single: AtomicBool,
    /// Address ranges that a sleeping pool had to release and needs again: start and bytes.
    pub(crate) wanted: Mutex<Vec<(DevicePtr, u64)>>,
}

/// How the memory of a chunk can be exported from the process, best way first.
const WAYS: [Sharing; 3] = [Sharing::FileDescriptor, Sharing::Fabric, Sharing::Private];

/// Requests that pay for chunks. After twice as many, earlier ones no longer count, so a program that has run for long
/// does not pay for thousands of small chunks at once.
const PAYING_REQUESTS: u64 = 20_000;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spending {
    /// Requests that no longer count, and their bytes.
    pub(super) before: (u64, u64),
    /// Requests that count.
    pub(crate) requests: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Chunks created or moved for them.
    pub(crate) chunks: u64,
}

impl Spending {
    /// Notes the requests so far, and their bytes. Those that no longer count are forgotten in proportion.
    fn note(&mut self, requests: u64, bytes: u64) {
        (self.requests, self.bytes) = (requests.saturating_sub(self.before.0), bytes.saturating_sub(self.before.1));
        if self.requests > 2 * PAYING_REQUESTS {
            self.chunks = self.chunks.saturating_mul(PAYING_REQUESTS) / self.requests;
            self.bytes = self.bytes / self.requests * PAYING_REQUESTS;
            self.requests = PAYING_REQUESTS;
            self.before = (requests - self.requests, bytes - self.bytes);
        }
    }
}

#[derive(Default)]
struct ChunkSlots {
    slots: Vec<Option<Physical>>,
    vacant: Vec<ChunkId>,
}

struct Physical {
    backing: Backing,
    sharing: Sharing,
    /// Whether the driver has refused to map it a second time, so that it must be unmapped before it moves.
    single: bool,
}

impl ChunkTable {
    /// Records a peak of bytes in use. Returns the highest so far, which a reset of the statistics does not lower.
    pub(crate) fn use_peak(&self, used: u64) -> u64 {
        self.use_peak.fetch_max(used, Relaxed).max(used)
    }

    /// The chunks created or moved for recent requests, of all `requests` so far, which have so many `bytes`.
    pub(crate) fn spending(&self, requests: u64, bytes: u64) -> Spending {
        let mut spending = self.spending.lock();
        spending.note(requests, bytes);
        *spending
    }

    /// How many chunks there are.
    pub(crate) fn count(&self) -> usize {
        self.table.lock().slots.iter().flatten().count()
    }

    pub(crate) fn spend(&self, chunks: u64) {
        self.spending.lock().chunks += chunks;
    }

    pub(crate) fn create(&self, memory: &dyn VirtualMemory, bytes: u64, rdma: bool) -> hal::Result<ChunkId> {
        let backing = self.create_backing(memory, bytes, rdma)?;
        self.bytes.fetch_add(bytes, Relaxed);
        let mut table = self.table.lock();
        if let Some(id) = table.vacant.pop() {
            table.slots[id.0 as usize] = Some(backing);
            return Ok(id);
        }
        let id = u32::try_from(table.slots.len()).unwrap_or(u32::MAX);
        table.slots.push(Some(backing));
        Ok(ChunkId(id))
    }

    /// Creates a backing that can be exported to other processes, if the driver supports that.
    fn create_backing(&self, memory: &dyn VirtualMemory, bytes: u64, rdma: bool) -> hal::Result<Physical> {
        let is_refusal = |error: hal::Error| matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::NoFabric);
        let mut way = self.refused.load(Relaxed);
        loop {
            match memory.create_backing(bytes, WAYS[way], rdma) {
                Ok(backing) => {
                    self.refused.store(way, Relaxed);
                    return Ok(Physical { backing, sharing: WAYS[way], single: false });
                }
                Err(error) if way + 1 < WAYS.len() && is_refusal(error) => way += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the driver's handle of a chunk, and how it can be exported.
    ///
    /// Callers make slow driver calls without the table's lock. They hold the chunk, which keeps the handle valid.
    pub(crate) fn physical(&self, id: ChunkId, call: &'static str) -> hal::Result<(Backing, Sharing)> {
        match self.table.lock().slots.get(id.0 as usize) {
            Some(Some(Physical { backing, sharing, .. })) => {
                Ok((Backing::from_raw(backing.raw(), backing.bytes()), *sharing))
            }
            _ => Err(hal::Error::new(ErrorKind::InvalidHandle, call)),
        }
    }

    /// Maps a whole chunk that the caller holds. Access to the new addresses is not yet set.
    pub(crate) fn map(&self, memory: &dyn VirtualMemory, chunk: Chunk) -> hal::Result<()> {
        let (backing, _) = self.physical(chunk.id, "map")?;
        let at = pointer(chunk.at)?;
        // SAFETY: 1. the table has only live backings, and no other thread destroys that of a held chunk.
        unsafe { memory.map(at, &backing) }
    }

    /// Records that the driver refused to map a chunk a second time.
    pub(crate) fn set_single(&self, id: ChunkId) {
        if let Some(Some(physical)) = self.table.lock().slots.get_mut(id.0 as usize) {
            physical.single = true;
            self.any_single.store(true, Relaxed);
        }
    }

    /// Whether the driver has refused to map a chunk a second time.
    pub(crate) fn is_single(&self, id: ChunkId) -> bool {
        let is_single = |slots: &ChunkSlots| matches!(slots.slots.get(id.0 as usize), Some(Some(p)) if p.single);
        self.any_single.load(Relaxed) && is_single(&self.table.lock())
    }

    /// Destroys a chunk; its memory is freed with its last mapping. After a failure the caller can try again.
    pub(crate) fn destroy(&self, memory: &dyn VirtualMemory, id: ChunkId) -> hal::Result<u64> {
        let bytes = self.suspend(memory, id)?;
        if bytes > 0 {
            self.forget(id);
        }
        Ok(bytes)
    }

    /// Returns the memory of a chunk to the device, and keeps its id. Zero bytes mean that it had none.
    pub(crate) fn suspend(&self, memory: &dyn VirtualMemory, id: ChunkId) -> hal::Result<u64> {
        let allocated = self.table.lock().slots.get_mut(id.0 as usize).and_then(Option::take);
        let Some(physical) = allocated else { return Ok(0) };
        let (raw, bytes) = (physical.backing.raw(), physical.backing.bytes());
        // SAFETY: 1. this device created the backing, and it was just removed from the table.
        if let Err(error) = unsafe { memory.destroy_backing(physical.backing) } {
            self.table.lock().slots[id.0 as usize] =
                Some(Physical { backing: Backing::from_raw(raw, bytes), ..physical });
            return Err(error);
        }
        self.bytes.fetch_sub(bytes, Relaxed);
        Ok(bytes)
    }

    pub(crate) fn resume(&self, memory: &dyn VirtualMemory, id: ChunkId, bytes: u64, rdma: bool) -> hal::Result<()> {
        let backing = self.create_backing(memory, bytes, rdma)?;
        self.bytes.fetch_add(bytes, Relaxed);
        self.table.lock().slots[id.0 as usize] = Some(backing);
        Ok(())
    }

    pub(crate) fn has_memory(&self, id: ChunkId) -> bool {
        let table = self.table.lock();
        table.slots.get(id.0 as usize).is_some_and(Option::is_some)
    }

    /// Makes the id of a suspended chunk available again.
    pub(crate) fn forget(&self, id: ChunkId) {
        self.table.lock().vacant.push(id);
    }

    /// Ends the exclusion of an address range that is reserved again.
    pub(crate) fn include_range(&self, range: (DevicePtr, u64)) {
        self.wanted.lock().retain(|known| *known != range);
    }

    pub(crate) fn is_wanted(&self, start: u64, bytes: u64) -> bool {
        let wanted = self.wanted.lock();
        wanted.iter().any(|(at, length)| at.address() < start + bytes && start < at.address() + length)
    }

    /// Reserves addresses that no sleeping pool needs again.
    pub(crate) fn reserve_outside_excluded(&self, memory: &dyn VirtualMemory, bytes: u64) -> hal::Result<DevicePtr> {
        let mut aside = Vec::new();
        let found = loop {
            match memory.reserve(bytes, None) {
                // This range stays reserved until another one is found, so that the driver does not return it again.
                Ok(start) if self.is_wanted(start.address(), bytes) => aside.push(start),
                found => break found,
            }
        };
        for start in aside {
            // SAFETY: 1. the range was just reserved, and no other code has its address. If the driver refuses to
            // release the addresses, they are lost, but the request is still served.
            let _ = unsafe { memory.release(start, bytes) };
        }
        found
    }
}

pub(crate) fn pointer(address: u64) -> hal::Result<DevicePtr> {
    DevicePtr::new(address).ok_or(hal::Error::new(ErrorKind::InvalidValue, "map"))
}

#[cfg(test)]
mod tests {
    use cachette_hal::{Call, Device, Ordinal};
    use cachette_hal_host::{HostBackend, HostConfig};

    use super::*;

    #[test]
    fn the_number_of_a_chunk_that_is_gone_is_used_again_once() {
        let backend = HostBackend::new(HostConfig::default().phantom(true)).unwrap();
        let device = backend.device(Ordinal(0)).unwrap();
        let memory = device.virtual_memory().unwrap();
        let chunks = ChunkTable::default();
        let create = || chunks.create(memory, 1 << 21, false).unwrap();
        let (first, second) = (create(), create());
        assert_eq!(chunks.destroy(memory, first), Ok(1 << 21));
        assert_eq!(create(), first);
        assert_eq!(chunks.destroy(memory, first), Ok(1 << 21));
        assert_eq!(chunks.destroy(memory, first), Ok(0), "it is gone already");
        let (reused, third) = (create(), create());
        assert_eq!(reused, first);
        assert!(![first, second].contains(&third));
        assert_eq!(chunks.suspend(memory, second), Ok(1 << 21));
        assert_eq!(chunks.bytes.load(Relaxed), 2 << 21);
        chunks.resume(memory, second, 1 << 21, false).unwrap();
        assert_eq!(chunks.bytes.load(Relaxed), 3 << 21, "its memory counts again");
        for id in [first, second, third] {
            chunks.destroy(memory, id).unwrap();
        }
        assert_eq!(chunks.bytes.load(Relaxed), 0);
    }

    #[test]
    fn a_driver_that_refuses_every_way_of_sharing_is_an_error() {
        let device = HostBackend::new(HostConfig::default()).unwrap().device(Ordinal(0)).unwrap();
        (1..=3).for_each(|nth| device.fail_next(Call::CreateBacking, nth, ErrorKind::Unsupported));
        let refused = ChunkTable::default().create(device.virtual_memory().unwrap(), 1 << 21, false);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn addresses_that_a_sleeping_pool_needs_are_reserved_for_no_other() {
        let chunks = ChunkTable::default();
        let range = (DevicePtr::new(0x4000).unwrap(), 0x1000);
        chunks.wanted.lock().push(range);
        assert!(chunks.is_wanted(0x3000, 0x1001) && chunks.is_wanted(0x4fff, 1) && chunks.is_wanted(0x3000, 0x9000));
        assert!(!chunks.is_wanted(0x3000, 0x1000) && !chunks.is_wanted(0x5000, 0x1000));
        chunks.include_range(range);
        assert!(!chunks.is_wanted(0x4000, 0x1000));
    }

    #[test]
    fn the_highest_peak_counts() {
        let chunks = ChunkTable::default();
        assert_eq!([10, 9, 11, 10].map(|used| chunks.use_peak(used)), [10, 10, 11, 11]);
    }

    #[test]
    fn requests_of_long_ago_pay_for_nothing() {
        let chunks = ChunkTable::default();
        chunks.spend(100);
        let recent = |requests, bytes| {
            let Spending { requests, bytes, chunks, .. } = chunks.spending(requests, bytes);
            (requests, bytes, chunks)
        };
        assert_eq!(recent(40_000, 120_000), (40_000, 120_000, 100));
        assert_eq!(recent(10_000_000, 10_000_000), (20_000, 20_000, 0));
        chunks.spend(200);
        assert_eq!(recent(10_010_000, 10_080_000), (30_000, 100_000, 200));
        assert_eq!(recent(10_020_001, 10_180_000), (20_000, 80_000, 99), "half of them are old");
    }
}
