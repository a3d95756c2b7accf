//! The cache of pinned memory: its blocks, and the driver's memory below them.

use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use cachette_hal::{self as hal, Device, ErrorKind, HostMemory};

use super::blocks::{PinnedBlock, PinnedBlocks, rounded, segment_bytes};
use super::memory::{PinnedMemory, PinnedReserve};
use super::stats::PinnedStats;
use super::uses::{PinnedPending, PinnedUser, Worker, spawn};
use crate::blocks::{BlockId, SegmentId};
use crate::config::Config;
use crate::device_state::DeviceState;
use crate::error::Error;
use crate::label::Label;
use crate::pool::route::Routes;
use crate::size::TOO_LARGE;
use crate::sync::Mutex;
use crate::sync::lock::{self, Lock};

/// The pinned memory of one allocator.
///
/// No lock is taken inside another. No driver call is made under a lock that a hit or a free takes.
pub(crate) struct PinnedCache<D: Device> {
    pub(super) shared: Arc<DeviceState<D>>,
    /// Used to find the pool of a capture.
    pub(super) routes: Arc<Routes>,
    pub(crate) blocks: Lock<PinnedBlocks<D>>,
    pub(super) pending: Lock<Vec<PinnedPending<D>>>,
    /// Held by the thread that processes events.
    pub(super) turn: Mutex<()>,
    /// Held by the thread that returns free blocks to the driver. Meanwhile they are in no list.
    leaving: Mutex<()>,
    pub(super) reserve: Mutex<Option<PinnedReserve>>,
    /// The figures of driver calls; `blocks` counts the active ones.
    pub(super) totals: Mutex<PinnedStats>,
    pub(super) worker: Worker,
    pub(super) spawn: fn(Arc<Self>) -> io::Result<JoinHandle<()>>,
    me: Weak<Self>,
    /// A reference to itself after the allocator is dropped, until `left` blocks are freed.
    keep: Mutex<Option<Arc<Self>>>,
    /// Owned blocks after the allocator is dropped.
    left: AtomicI64,
}

pub(super) type PinnedGuard<'a, D> = lock::LockGuard<'a, PinnedBlocks<D>>;

/// The remaining work of a free. It keeps the cache alive until then.
#[must_use = "the block is lost without `end`"]
pub(super) struct PinnedFreed<D: Device> {
    cache: Arc<PinnedCache<D>>,
    id: BlockId,
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
            blocks: Lock::default(),
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

    /// Allocates a block for `bytes` bytes; none for no bytes.
    #[inline(always)]
    pub(super) fn allocate(&self, bytes: u64, label: Label) -> Result<Option<PinnedBlock>, Error> {
        let again = lock::enter(&self.blocks).and_then(|mut blocks| blocks.allocate_again(bytes, label));
        again.map_or_else(|| self.allocate_search(bytes, label), |allocated| Ok(Some(allocated)))
    }

    #[inline(never)]
    fn allocate_search(&self, bytes: u64, label: Label) -> Result<Option<PinnedBlock>, Error> {
        if bytes == 0 {
            return Ok(None);
        }
        if bytes >= TOO_LARGE {
            return Err(Error::TooLarge { bytes });
        }
        self.allocate_free(bytes, label).map_or_else(|| self.allocate_slow(bytes, label), Ok).map(Some)
    }

    /// Allocates a free block. Returns `None` in a forked child.
    fn allocate_free(&self, bytes: u64, label: Label) -> Option<PinnedBlock> {
        self.enter()?.allocate(bytes, label)
    }

    /// Frees a block, except in a forked child. [`PinnedFreed::end`] does the remaining work, if any.
    #[inline(always)]
    pub(super) fn free(&self, id: BlockId) -> Option<PinnedFreed<D>> {
        self.free_held(self.enter()?, id)
    }

    #[inline(always)]
    fn enter(&self) -> Option<PinnedGuard<'_, D>> {
        lock::enter(&self.blocks).or_else(|| lock::share_often(&self.blocks, &self.shared.origin))
    }

    /// Does the same, with the lock held.
    #[inline(always)]
    pub(super) fn free_held(&self, mut blocks: PinnedGuard<'_, D>, id: BlockId) -> Option<PinnedFreed<D>> {
        if blocks.try_free(id) { None } else { Some(self.suspend(blocks, id)) }
    }

    #[cold]
    fn suspend(&self, mut blocks: PinnedGuard<'_, D>, id: BlockId) -> PinnedFreed<D> {
        // The cache is alive while the block has an owner.
        let cache = self.me.upgrade().expect("the cache outlives its blocks");
        let (users, closed) = blocks.suspend(id);
        PinnedFreed { cache, id, users, closed }
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

    /// Returns every idle segment to the driver, after other threads that do. Returns the bytes, and the first failure.
    pub(super) fn release_free(&self) -> (u64, hal::Result<()>) {
        // Hits and frees do not take this lock.
        let _alone = self.leaving.lock();
        let _relaxed = self.shared.relax_capture();
        let idle = self.blocks.lock().idle_segments();
        idle.into_iter().fold((0, Ok(())), |(bytes, result), id| {
            let gone = self.release_segment(id);
            (bytes + gone.unwrap_or(0), result.and(gone.map(drop)))
        })
    }

    /// Returns a segment to the driver, if it is idle. After a failure it is available again. Returns its bytes.
    fn release_segment(&self, id: SegmentId) -> hal::Result<u64> {
        // No table has it during the call, since the driver may give the same address to another thread at once.
        let Some(segment) = self.blocks.lock().begin_leaving(id) else { return Ok(0) };
        let gone = self.release_memory(segment.memory);
        if gone.is_ok() {
            let mut totals = self.totals.lock();
            totals.allocations.lower(1);
            totals.allocated_bytes.lower(segment.bytes);
        }
        self.blocks.lock().end_leaving(segment, gone.is_ok());
        gone.map(|()| segment.bytes)
    }

    /// Frees a block that no stream or graph uses any more.
    pub(super) fn free_pending(&self, id: BlockId) -> hal::Result<()> {
        let leaving = self.blocks.lock().free_pending(id);
        let may_wait = !self.shared.settings.never_block.load(Ordering::Relaxed);
        let Some(segment) = leaving.filter(|_| may_wait) else { return Ok(()) };
        // A request that is short of memory waits for it.
        let _alone = self.leaving.lock();
        let _relaxed = self.shared.relax_capture();
        self.release_segment(segment).map(drop)
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
        let totals = *self.totals.lock();
        let [active_requests, active_bytes] = self.blocks.lock().active.stats();
        PinnedStats { active_requests, active_bytes, ..totals }
    }

    pub(super) fn reset_peaks(&self) {
        let mut totals = self.totals.lock();
        totals.allocations.reset_peak();
        totals.allocated_bytes.reset_peak();
        drop(totals);
        self.blocks.lock().reset_peaks();
    }

    pub(super) fn reset_totals(&self) {
        let mut totals = self.totals.lock();
        let PinnedStats { mut allocations, mut allocated_bytes, .. } = *totals;
        allocations.reset_totals();
        allocated_bytes.reset_totals();
        *totals = PinnedStats { allocations, allocated_bytes, ..PinnedStats::default() };
        drop(totals);
        self.blocks.lock().reset_totals();
    }

    /// Records that the allocator is dropped. The cache is destroyed with its last owned block.
    pub(crate) fn close(&self) {
        self.worker.stop();
        *self.keep.lock() = self.me.upgrade();
        let owned = self.blocks.lock().close();
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
        // A block that is freed before they are added is subtracted first, so the sum is zero only at the end.
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
            for (id, _) in pending {
                self.blocks.lock().free_pending(id);
            }
        }
    }

    /// Finds a block if none is free: one whose uses have ended, or one from the driver. If the driver has no memory,
    /// it asks again after it has released the idle segments, and after all uses have ended.
    #[cold]
    #[inline(never)]
    fn allocate_slow(&self, bytes: u64, label: Label) -> Result<PinnedBlock, Error> {
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
            if let Some(allocated) = self.allocate_free(bytes, label) {
                return Ok(allocated);
            }
            if attempt > 0 {
                // It also waits for what another thread returns. Segments that the driver fails to free stay available.
                let _ = self.release_free();
            }
            if let Some(allocated) = self.alloc_segment(bytes, label, attempt > 0)? {
                return Ok(allocated);
            }
        }
        let figures = self.stats();
        Err(Error::OutOfPinnedMemory {
            requested: bytes,
            block: rounded(bytes),
            held: figures.allocated_bytes.current,
            active: figures.active_bytes.current,
        })
    }

    /// Allocates a block in a new segment, which has no room for others if memory is `short`.
    fn alloc_segment(&self, bytes: u64, label: Label, short: bool) -> hal::Result<Option<PinnedBlock>> {
        let config = self.shared.settings.config();
        let cached = config.pinned_max_cached_bytes().is_none_or(|most| bytes <= most);
        let Ok(wanted) = usize::try_from(segment_bytes(rounded(bytes), cached && !short)) else { return Ok(None) };
        let cut = self.cut_reserve(rounded(bytes), wanted, &config);
        let (memory, wanted) = match cut.map_or_else(|| Ok((self.make(wanted, &config)?, wanted)), Ok::<_, hal::Error>)
        {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => return Ok(None),
            found => found?,
        };
        let allocated = self.blocks.lock().add(memory, wanted as u64, (bytes, label), cached);
        if allocated.is_none() {
            self.release_memory(memory)?;
        } else if !memory.is_of_reserve() {
            self.count_segment(wanted);
        }
        Ok(allocated)
    }

    fn count_segment(&self, bytes: usize) {
        let mut totals = self.totals.lock();
        totals.allocations.raise(1);
        totals.allocated_bytes.raise(bytes as u64);
    }

    /// Cuts a segment from the reserve segment. The first request allocates that, if it is configured.
    fn cut_reserve(&self, least: u64, wanted: usize, config: &Config) -> Option<(PinnedMemory, usize)> {
        let bytes = usize::try_from(config.pinned_reserve_segment_bytes()?).ok()?;
        // Only misses get here. A concurrent miss waits for the new segment and uses a part of it.
        let mut reserve = self.reserve.lock();
        if reserve.is_none() {
            // Without a segment, every one is allocated separately.
            *reserve = Some(PinnedReserve { segment: self.make(bytes, config).ok()?, bytes, used: 0 });
            self.count_segment(bytes);
        }
        reserve.as_mut()?.cut(usize::try_from(least).ok()?, wanted)
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
        let Self { cache, id, mut users, closed } = self;
        let marked = PinnedCache::record_fences(&mut users);
        let (pending, freed) = cache.end_wait(id, users);
        cache.pending.lock().extend(pending);
        if closed {
            cache.release_unused();
            cache.decrement_live(-1);
        } else {
            cache.wake();
        }
        marked.and(freed)
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
        let used = self.blocks.lock().uses_reserve();
        if !used && let Some(PinnedReserve { segment, .. }) = self.reserve.lock().take() {
            let tried = self.release_memory(segment);
            let _ = tried.or_else(|_| self.release_memory(segment));
        }
    }
}
