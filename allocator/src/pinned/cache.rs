//! The cache of pinned memory: blocks by size, and their users.

use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use cachette_hal::{self as hal, Device, ErrorKind, HostMemory};

use super::bucket::{Bucket, PinnedPlace, PinnedState};
use super::memory::{PinnedMemory, PinnedReserve};
use super::stats::PinnedStats;
use super::uses::{PinnedPending, PinnedUser, Worker, spawn};
use crate::config::Config;
use crate::device_state::DeviceState;
use crate::error::Error;
use crate::pool::route::Routes;
use crate::size::TOO_LARGE;
use crate::stats::Stat;
use crate::sync::Mutex;
use crate::sync::lock::{self, Lock};

const BUCKETS: usize = 64;

/// The pinned memory of one allocator.
///
/// No lock is taken inside another. No driver call is made under a lock that a hit or a free takes.
pub(crate) struct PinnedCache<D: Device> {
    pub(super) shared: Arc<DeviceState<D>>,
    /// Used to find the pool of a capture.
    pub(super) routes: Arc<Routes>,
    pub(super) buckets: [Lock<Bucket<D>>; BUCKETS],
    /// The position of each block, by the address of its first byte.
    pub(super) table: Lock<BTreeMap<usize, PinnedPlace>>,
    pub(super) pending: Lock<Vec<PinnedPending<D>>>,
    /// Held by the thread that processes events.
    pub(super) turn: Mutex<()>,
    /// Held by the thread that returns free blocks to the driver. Meanwhile they are in no list.
    leaving: Mutex<()>,
    pub(super) reserve: Mutex<Option<PinnedReserve>>,
    /// The figures of driver calls; the buckets count the active blocks.
    pub(super) totals: Mutex<PinnedStats>,
    pub(super) worker: Worker,
    pub(super) spawn: fn(Arc<Self>) -> io::Result<JoinHandle<()>>,
    me: Weak<Self>,
    /// A reference to itself after the allocator is dropped, until `left` blocks are freed.
    keep: Mutex<Option<Arc<Self>>>,
    /// Owned blocks after the allocator is dropped; not exact before all buckets are closed.
    left: AtomicI64,
}

/// An allocated block: its slot, and its first byte.
pub(super) type PinnedBlock = (PinnedPlace, NonNull<u8>);

pub(super) type BucketGuard<'a, D> = lock::LockGuard<'a, Bucket<D>>;

/// The remaining work of a free. It keeps the cache alive until then.
#[must_use = "the block is lost without `end`"]
pub(super) struct PinnedFreed<D: Device> {
    cache: Arc<PinnedCache<D>>,
    place: PinnedPlace,
    users: Vec<PinnedUser<D>>,
    closed: bool,
}

impl<D: Device> PinnedCache<D> {
    pub(crate) fn new(shared: &Arc<DeviceState<D>>, routes: &Arc<Routes>) -> Arc<Self>
    where
        D: 'static,
    {
        Arc::new_cyclic(|me| Self {
            shared: Arc::clone(shared),
            routes: Arc::clone(routes),
            buckets: std::array::from_fn(|_| Lock::default()),
            table: Lock::default(),
            pending: Lock::default(),
            turn: Mutex::default(),
            leaving: Mutex::default(),
            reserve: Mutex::default(),
            totals: Mutex::default(),
            worker: Worker::default(),
            spawn,
            me: Weak::clone(me),
            keep: Mutex::default(),
            left: AtomicI64::new(0),
        })
    }

    /// Allocates a block for `bytes` bytes, at least one.
    #[inline]
    pub(super) fn allocate(&self, bytes: usize, state: PinnedState) -> Result<PinnedBlock, Error> {
        if bytes as u64 >= TOO_LARGE {
            return Err(Error::TooLarge { bytes: bytes as u64 });
        }
        let bucket = log2_ceil(bytes);
        self.take_free(bucket, state).map_or_else(|| self.allocate_slow(bucket, bytes, state), Ok)
    }

    /// Allocates the last-freed block of a bucket. Returns `None` in a forked child.
    #[inline(always)]
    pub(super) fn take_free(&self, bucket: u32, state: PinnedState) -> Option<PinnedBlock> {
        self.enter(bucket)?.allocate(state).map(|(slot, ptr)| (PinnedPlace { bucket, slot }, ptr))
    }

    /// Frees a block, except in a forked child. [`PinnedFreed::end`] does the remaining work, if any.
    #[inline]
    pub(super) fn free(&self, place: PinnedPlace) -> Option<PinnedFreed<D>> {
        self.free_held(self.enter(place.bucket)?, place)
    }

    #[inline(always)]
    fn enter(&self, bucket: u32) -> Option<BucketGuard<'_, D>> {
        let lock = &self.buckets[bucket as usize];
        lock::enter(lock).or_else(|| lock::share_often(lock, &self.shared.origin))
    }

    /// Does the same, with the lock of the bucket held.
    #[inline(always)]
    pub(super) fn free_held(&self, mut bucket: BucketGuard<'_, D>, place: PinnedPlace) -> Option<PinnedFreed<D>> {
        if bucket.try_free(place.slot) { None } else { Some(self.suspend(bucket, place)) }
    }

    #[cold]
    fn suspend(&self, mut bucket: BucketGuard<'_, D>, place: PinnedPlace) -> PinnedFreed<D> {
        // The cache is alive while the block has an owner.
        let cache = self.me.upgrade().expect("the cache outlives its blocks");
        let (users, closed) = bucket.suspend(place.slot);
        PinnedFreed { cache, place, users, closed }
    }

    #[inline(always)]
    pub(super) fn bucket(&self, place: PinnedPlace) -> &Lock<Bucket<D>> {
        &self.buckets[place.bucket as usize]
    }

    pub(super) fn driver(&self) -> Result<&dyn HostMemory, hal::Missing> {
        self.shared.device.host_memory()
    }

    /// Frees the pending blocks without users, and returns all free blocks to the driver. Returns their bytes.
    pub(super) fn empty(&self) -> Result<u64, Error> {
        let processed = self.process_events();
        let (bytes, result) = self.release_free();
        processed?;
        match result {
            Err(error) if !self.shared.settings.config().pinned_free_catch_all() => Err(error.into()),
            _ => Ok(bytes),
        }
    }

    /// Returns every free block to the driver, after other threads that do. Returns the bytes, and the first failure.
    pub(super) fn release_free(&self) -> (u64, hal::Result<()>) {
        // Hits and frees do not take this lock.
        let _alone = self.leaving.lock();
        let _relaxed = self.shared.relax_capture();
        let (mut bytes, mut result) = (0, Ok(()));
        for (index, bucket) in (0..).zip(&self.buckets) {
            let leaving = bucket.lock().begin_leaving();
            for (slot, memory) in leaving {
                let place = PinnedPlace { bucket: index, slot };
                let gone = self.give_back(place, memory);
                bytes += gone.map_or(0, |()| place.bytes() as u64);
                result = result.and(gone);
            }
        }
        (bytes, result)
    }

    /// Returns a block that has left the free list to the driver. After a failure it is listed again.
    fn give_back(&self, place: PinnedPlace, memory: PinnedMemory) -> hal::Result<()> {
        // This comes before the free: the driver may assign the same address to another thread at once.
        self.table.lock().remove(&memory.address());
        let gone = self.release_memory(memory);
        if gone.is_ok() {
            let mut totals = self.totals.lock();
            totals.allocations.lower(1);
            totals.allocated_bytes.lower(place.bytes() as u64);
        } else {
            self.table.lock().insert(memory.address(), place);
        }
        self.bucket(place).lock().end_leaving(place.slot, gone.is_ok());
        gone
    }

    fn release_memory(&self, memory: PinnedMemory) -> hal::Result<()> {
        let begun = Instant::now();
        // SAFETY: 1. the memory was allocated with this driver, and has just left the free list. 2. It was free, so its
        // caller has released it, and its recorded uses have ended.
        unsafe { memory.give_back(self.driver()?) }?;
        let mut totals = self.totals.lock();
        totals.num_host_free += 1;
        totals.host_free_time.add(begun.elapsed());
        Ok(())
    }

    pub(super) fn stats(&self) -> PinnedStats {
        let mut stats = *self.totals.lock();
        for (index, bucket) in self.buckets.iter().enumerate() {
            let active = bucket.lock().active;
            stats.active_requests.add(active, 1);
            stats.active_bytes.add(active, 1 << index);
        }
        stats
    }

    /// Resets every figure that has a peak and totals.
    pub(super) fn reset(&self, reset: fn(&mut Stat)) {
        let mut totals = self.totals.lock();
        reset(&mut totals.allocations);
        reset(&mut totals.allocated_bytes);
        drop(totals);
        self.buckets.iter().for_each(|bucket| reset(&mut bucket.lock().active));
    }

    pub(super) fn reset_totals(&self) {
        self.reset(Stat::reset_totals);
        let mut totals = self.totals.lock();
        let PinnedStats { allocations, allocated_bytes, .. } = *totals;
        *totals = PinnedStats { allocations, allocated_bytes, ..PinnedStats::default() };
    }

    /// Records that the allocator is dropped. The cache is destroyed with its last owned block.
    pub(crate) fn close(&self) {
        self.worker.stop();
        *self.keep.lock() = self.me.upgrade();
        let owned: usize = self.buckets.iter().map(|bucket| bucket.lock().close()).sum();
        self.release_unused();
        self.decrement_live(i64::try_from(owned).unwrap_or(i64::MAX));
    }

    /// Returns all free blocks to the driver, after the allocator is dropped.
    fn release_unused(&self) {
        // No caller can receive a failure here. The drop of the cache tries the remaining blocks again.
        let _ = self.process_events();
        let _ = self.release_free();
    }

    /// Adds to `left`, and drops the cache's reference to itself when it becomes zero.
    fn decrement_live(&self, more: i64) {
        // A block that is freed while buckets are being closed is subtracted first, so the sum is zero only at the end.
        // Acquire and release: the thread that reaches zero sees the changes of all others.
        if self.left.fetch_add(more, Ordering::AcqRel) + more == 0 {
            let last = self.keep.lock().take();
            drop(last);
        }
    }

    /// Frees the pending blocks once the device is idle. If the wait fails, they stay: the device may write to them.
    fn drain(&mut self) {
        let pending = std::mem::take(self.pending.get_mut());
        if pending.is_empty() {
            return;
        }
        let wait = || self.shared.device.synchronize_device();
        // The first wait may only report an older failure.
        if wait().or_else(|_| wait()).is_ok() {
            for (place, _) in pending {
                self.bucket(place).lock().free(place.slot);
            }
        }
    }

    /// Finds a block if none is free: one whose uses have ended, or one from the driver. If the driver has no memory,
    /// it asks again after it has released all free blocks, and after all uses have ended.
    #[cold]
    #[inline(never)]
    fn allocate_slow(&self, bucket: u32, requested: usize, state: PinnedState) -> Result<PinnedBlock, Error> {
        self.shared.origin.check()?;
        self.driver()?;
        lock::prepare();
        let _relaxed = self.shared.relax_capture();
        let blocks = !self.shared.settings.never_block.load(Ordering::Relaxed);
        for (attempt, waits) in [false, false, true].into_iter().enumerate() {
            if attempt > 0 && !blocks || waits && !self.wait_for_uses()? {
                break;
            }
            self.process_events()?;
            if let Some(allocated) = self.take_free(bucket, state) {
                return Ok(allocated);
            }
            if attempt > 0 {
                // It also waits for what another thread returns. Blocks that the driver fails to free remain available.
                let _ = self.release_free();
            }
            if let Some(allocated) = self.alloc_segment(bucket, state)? {
                return Ok(allocated);
            }
        }
        let figures = self.stats();
        Err(Error::OutOfPinnedMemory {
            requested: requested as u64,
            block: 1 << bucket,
            held: figures.allocated_bytes.current,
            active: figures.active_bytes.current,
        })
    }

    fn alloc_segment(&self, bucket: u32, state: PinnedState) -> hal::Result<Option<PinnedBlock>> {
        let bytes = 1 << bucket;
        let config = self.shared.settings.config();
        let memory = match self.cut_reserve(bytes, &config).map_or_else(|| self.make(bytes, &config), Ok) {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => return Ok(None),
            made => made?,
        };
        let slot = self.buckets[bucket as usize].lock().add(memory, state);
        let place = PinnedPlace { bucket, slot };
        self.table.lock().insert(memory.address(), place);
        let mut totals = self.totals.lock();
        totals.allocations.raise(1);
        totals.allocated_bytes.raise(bytes as u64);
        Ok(Some((place, memory.ptr)))
    }

    /// Cuts a block from the reserve segment. The first request allocates the segment, if it is configured.
    fn cut_reserve(&self, bytes: usize, config: &Config) -> Option<PinnedMemory> {
        let wanted = usize::try_from(config.pinned_reserve_segment_bytes()?).ok()?;
        // Only misses get here. A concurrent miss waits for the new segment and uses a part of it.
        let mut reserve = self.reserve.lock();
        if reserve.is_none() {
            // Without a segment, every block is allocated separately.
            *reserve = Some(PinnedReserve { segment: self.make(wanted, config).ok()?, bytes: wanted, used: 0 });
        }
        reserve.as_mut()?.cut(bytes)
    }

    fn make(&self, bytes: usize, config: &Config) -> hal::Result<PinnedMemory> {
        let begun = Instant::now();
        let memory = PinnedMemory::make(self.driver()?, bytes, config)?;
        let mut totals = self.totals.lock();
        totals.num_host_alloc += 1;
        totals.host_alloc_time.add(begun.elapsed());
        Ok(memory)
    }
}

impl<D: Device> PinnedFreed<D> {
    /// Records the uses of the block, so that it becomes free after them.
    pub(super) fn end(self) -> hal::Result<()> {
        let Self { cache, place, mut users, closed } = self;
        let marked = PinnedCache::record_fences(&mut users);
        let pending = cache.end_wait(place, users);
        cache.pending.lock().extend(pending);
        if closed {
            cache.release_unused();
            cache.decrement_live(-1);
        } else {
            cache.wake();
        }
        marked
    }
}

impl<D: Device> Drop for PinnedCache<D> {
    fn drop(&mut self) {
        let shared = Arc::clone(&self.shared);
        let _relaxed = shared.relax_capture();
        self.drain();
        // A destructor cannot return a failure. It retries once, since the driver may have reported an older failure.
        if self.release_free().1.is_err() {
            let _ = self.release_free();
        }
        let used = self.buckets.iter().any(|one| one.lock().uses_reserve());
        if !used && let Some(PinnedReserve { segment, .. }) = self.reserve.lock().take() {
            let tried = self.release_memory(segment);
            let _ = tried.or_else(|_| self.release_memory(segment));
        }
    }
}

/// Returns log2 of the smallest power of two that is at least `bytes`, which is not zero.
#[inline(always)]
fn log2_ceil(bytes: usize) -> u32 {
    usize::BITS - (bytes - 1).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n1_sizes_round_up_to_powers_of_two() {
        for (bytes, log2) in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (40 << 10, 16)] {
            assert_eq!(log2_ceil(bytes), log2, "{bytes}");
        }
        assert_eq!(log2_ceil((1 << 60) - 1), 60);
    }
}
