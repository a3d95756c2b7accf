//! Sleep: a pool releases its memory and keeps its addresses.
//!
//! A program that works in phases, such as one that generates and trains in turns, needs the memory of one phase in
//! the other. A pool that sleeps returns all its physical memory to the device. Allocations keep their addresses and
//! captured graphs stay valid, but the program must not use them. When the pool wakes, the same addresses have memory
//! again, with the previous contents if they were kept.
//!
//! ```
//! use cachette::sleep::Contents;
//! use cachette::{Allocator, Backends};
//!
//! let allocator = Allocator::new(Backends::open("host")?); // elastic segments, the default
//! let stream = allocator.create_stream()?;
//! let pool = allocator.create_pool();
//! let weights = pool.allocate(64 << 20, &stream)?;
//!
//! let slept = pool.sleep(Contents::Keep)?;
//! assert_eq!((slept.saved, pool.stats().reserved_bytes), (64 << 20, 0));
//! pool.wake()?;
//! assert_eq!(pool.stats().reserved_bytes, 64 << 20);
//! # drop(weights);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Work that the caller queues on an address of a sleeping pool faults, as it does after a free. `docs/sleep.md` has the
//! rules: which calls fail with [`PoolProblem::Asleep`], what a failure leaves, and what a progress callback may do.
//! Several pools with the same [tag](crate::PoolOptions::tag) can sleep and wake as one.

mod heap;
mod kept;
pub(crate) mod offload;
pub(crate) mod staging;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use cachette_hal::{Device, ErrorKind};

use crate::allocator::Allocator;
use crate::allocator::allocator_state::AllocatorState;
use crate::error::Error;
use crate::fence::Fence;
use crate::heap::Heap;
use crate::pool::pool_state::PoolState;
use crate::pool::{Pool, PoolId, PoolProblem};
use crate::reclaim::Reclaim;
use crate::sync::Mutex;

pub(crate) use offload::OffloadState;
pub use offload::{Contents, Progress, SleepStats};
pub(crate) use staging::StagingStore;

impl<D: Device> Pool<D> {
    /// Returns all memory of the pool to the device, and keeps every address.
    ///
    /// It first waits for all work that is queued in streams of this allocator, for recorded uses in any stream, and for
    /// active buffer calls. The caller must wait for all other work.
    pub fn sleep(&self, contents: Contents) -> Result<SleepStats, Error> {
        self.sleep_with(contents, |_| {})
    }

    /// Does the same as [`sleep`](Self::sleep), and reports progress.
    pub fn sleep_with(&self, contents: Contents, mut progress: impl FnMut(Progress)) -> Result<SleepStats, Error> {
        let state = &self.state;
        self.allocator().inner().shared.origin.check()?;
        let _turn = state.turn()?;
        if state.guards.load(Acquire) > 0 {
            return Err(PoolProblem::Resident.of(state.id));
        }
        self.allocator().inner().sleep_in_turn(state, contents, &mut progress)
    }

    /// Restores the memory of the pool at the same addresses, with the contents that were kept. Returns its bytes.
    ///
    /// If the device has too little memory, the allocator first releases the unused memory of other pools. That waits
    /// for streams that still use it, unless `never_block` is set. Then it [evicts](crate::evict) other pools.
    pub fn wake(&self) -> Result<u64, Error> {
        self.wake_with(|_| {})
    }

    /// Does the same as [`wake`](Self::wake), and reports progress.
    pub fn wake_with(&self, mut progress: impl FnMut(Progress)) -> Result<u64, Error> {
        let inner = self.allocator().inner();
        inner.shared.origin.check()?;
        let in_flight = &inner.shared.in_flight;
        let short =
            |woken: &Result<u64, Error>| matches!(woken, Err(Error::Pool { why: PoolProblem::NoMemory { .. }, .. }));
        let first = inner.wake_up(&self.state, &mut progress);
        if !short(&first) {
            return first;
        }
        self.allocator().empty_cache()?;
        let waits = !inner.shared.settings.never_block.load(Relaxed);
        if waits {
            let donors = inner.heaps.all();
            donors.iter().filter(|heap| heap.may_release()).try_for_each(|heap| heap.wait_and_unmap())?;
        }
        let mut others = None;
        loop {
            let tried = in_flight.begin_attempt();
            let woken = inner.wake_up(&self.state, &mut progress);
            let Err(Error::Pool { why: PoolProblem::NoMemory { bytes }, .. }) = woken else { return woken };
            if !waits {
                return woken;
            }
            if in_flight.may_change(tried) {
                // Other threads are returning memory.
                in_flight.wait(tried);
                continue;
            }
            let others = others.get_or_insert_with(|| Reclaim::new(inner, bytes, self.state.options.priority));
            let evicted = || inner.evict(self.id(), None, || inner.shortage(bytes).max(1)) > 0;
            if !(others.idle() || evicted() || others.last(true) || others.wait()) {
                return woken;
            }
        }
    }

    /// Returns whether the pool sleeps.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.state.is_asleep()
    }
}

impl<D: Device> Allocator<D> {
    /// Puts every pool with this tag to sleep; see [`Pool::sleep`].
    ///
    /// If one of them fails, the pools that went to sleep in this call are woken again.
    pub fn sleep_tagged(&self, tag: &str, contents: Contents) -> Result<SleepStats, Error> {
        let mut all = SleepStats::default();
        let mut asleep: Vec<Pool<D>> = Vec::new();
        for pool in self.pools_tagged(tag)? {
            let was_awake = !pool.is_asleep();
            let slept = pool.sleep(contents).inspect_err(|_| {
                // The caller gets the first failure, and can wake the pools that stay asleep later.
                for pool in &asleep {
                    let _ = pool.wake();
                }
            })?;
            all.released += slept.released;
            all.saved += slept.saved;
            if was_awake {
                asleep.push(pool);
            }
        }
        Ok(all)
    }

    /// Wakes every pool with this tag. Returns the bytes of their memory.
    pub fn wake_tagged(&self, tag: &str) -> Result<u64, Error> {
        self.pools_tagged(tag)?.iter().try_fold(0, |bytes, pool| Ok(bytes + pool.wake()?))
    }

    /// Allocates host memory for `bytes` of contents now, so that the first sleep is faster: 32 GiB take seconds.
    pub fn prepare_contents(&self, bytes: u64) -> Result<(), Error> {
        let inner = self.inner();
        let slabs = inner.store.take(&inner.shared, bytes).ok_or(PoolProblem::NoHostMemory.of(PoolId::DEFAULT))?;
        inner.store.put_back(slabs);
        Ok(())
    }

    /// Frees the host memory of pools that are awake, which the next sleep would reuse. Returns its bytes.
    #[expect(clippy::must_use_candidate, reason = "the figure is for those who want it")]
    pub fn release_contents(&self) -> u64 {
        self.inner().store.clear()
    }
}

impl<D: Device> AllocatorState<D> {
    /// Puts a pool to sleep; the caller has the turn of the pool.
    pub(crate) fn sleep_in_turn(
        &self,
        state: &PoolState,
        contents: Contents,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<SleepStats, Error> {
        if state.is_asleep() {
            return Ok(SleepStats::default());
        }
        let _relaxed = self.shared.relax_capture();
        self.check_can_sleep(state)?;
        match &state.options.before_sleep {
            Some(agree) => {
                agree.call(state.id).map_err(|error| Error::PoolCallback { pool: state.id, error })?;
            }
            None if state.options.registered => return Err(PoolProblem::Registered.of(state.id)),
            None => {}
        }
        self.drain(state)?;
        if !state.keeps() {
            self.heaps_of(state).iter().try_for_each(|heap| heap.release_idle().map(drop))?;
        }
        state.set_asleep(true);
        let slept = self.fall_asleep(state, contents, progress);
        if slept.is_err() {
            self.serve_unless_away(state);
        }
        slept
    }

    /// Puts a pool to sleep that no longer accepts requests.
    fn fall_asleep(
        &self,
        state: &PoolState,
        contents: Contents,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<SleepStats, Error> {
        let heaps = self.heaps_of(state);
        for heap in &heaps {
            heap.state.lock().asleep = true;
        }
        // A request that adds memory to a heap at this moment finishes first; the next one sees that the pool sleeps.
        // The same holds for a thread that moves chunks to another heap or to the device.
        for heap in &heaps {
            drop(heap.growth.lock());
            drop(heap.elastic().map(|elastic| elastic.moves.write()));
        }
        self.check_can_sleep(state)?;
        self.drain(state)?;
        // These include streams that are captured by now, which the drain left out.
        let mut fences = heaps.iter().flat_map(|heap| [heap.all_fences(), heap.unmap_fences()].concat());
        fences.try_for_each(|fence| fence.wait())?;
        // Addresses that stay mapped keep their memory, and cannot be released.
        heaps.iter().try_for_each(|heap| heap.try_to_unmap_pending().1)?;
        let offload = OffloadState::plan(&self.shared, &heaps, contents, state.keeps(), &self.store);
        // The state stays in the table, even if `progress` panics, until the pool has all its memory again.
        let offload = Arc::new(Mutex::new(offload.ok_or(PoolProblem::NoHostMemory.of(state.id))?));
        self.offloads.lock().insert(state.id, Arc::clone(&offload));
        let mut offload = offload.lock();
        if contents == Contents::Discard {
            state.is_lost.store(true, Relaxed);
        }
        if let Err(error) = offload.offload(&self.store, progress) {
            // If this fails too, a later wake undoes the rest.
            let _ = offload.restore(&self.store, &mut |_| {});
            return Err(error.into());
        }
        Ok(SleepStats { released: offload.offloaded_bytes(), saved: offload.saved() })
    }

    /// Restores the memory of a pool. Returns its bytes.
    fn wake_up(&self, state: &PoolState, progress: &mut dyn FnMut(Progress)) -> Result<u64, Error> {
        let _turn = state.turn()?;
        if !state.is_asleep() {
            return Ok(0);
        }
        let _relaxed = self.shared.relax_capture();
        self.heaps_of(state).iter().try_for_each(|heap| heap.process_events())?;
        self.forget_freed(state);
        let mut bytes = 0;
        if let Some(offload) = self.offload(state) {
            let mut offload = offload.lock();
            bytes = offload.offloaded_bytes();
            offload.read_back().map_err(|error| PoolProblem::File { kind: error.kind() }.of(state.id))?;
            if let Err(error) = offload.restore(&self.store, progress) {
                return Err(match error.kind() {
                    ErrorKind::OutOfMemory => PoolProblem::NoMemory { bytes }.of(state.id),
                    _ => error.into(),
                });
            }
        }
        self.serve_unless_away(state);
        Ok(bytes)
    }

    /// Lets a pool serve requests again, unless some memory or address is missing, or a copy may still run.
    fn serve_unless_away(&self, state: &PoolState) {
        if self.offload(state).is_some_and(|offload| offload.lock().is_asleep()) {
            return;
        }
        let offload = self.offloads.lock().remove(&state.id);
        if let Some(offload) = offload {
            offload.lock().end(&self.store);
        }
        state.set_asleep(false);
        for heap in self.heaps_of(state) {
            heap.state.lock().asleep = false;
        }
    }

    fn check_can_sleep(&self, state: &PoolState) -> Result<(), Error> {
        for heap in self.heaps_of(state) {
            if !heap.is_elastic() && heap.reserved() > 0 {
                return Err(PoolProblem::NotElastic.of(state.id));
            }
            if heap.is_exporting() {
                return Err(PoolProblem::Offered.of(state.id));
            }
            if let Some(address) = heap.lent() {
                return Err(PoolProblem::Lent { address }.of(state.id));
            }
            // The host cannot wait for the earlier work of a captured stream.
            for stream_state in std::iter::once(&heap.stream_state).chain(&heap.users()) {
                if stream_state.ask_capturing()? {
                    return Err(PoolProblem::Captured.of(state.id));
                }
            }
        }
        Ok(())
    }

    /// Waits for all queued work of the allocator, the graphs of a pool, and recorded uses of its memory in any stream.
    fn drain(&self, state: &PoolState) -> Result<(), Error> {
        if !self.settle_launches(state, true)? {
            return Err(PoolProblem::Captured.of(state.id));
        }
        let mut streams = self.heaps.streams();
        streams.extend(self.heaps_of(state).into_iter().flat_map(|heap| heap.users()));
        let mut done = HashSet::new();
        for stream_state in &streams {
            if !done.insert(stream_state.number) {
                continue;
            }
            // Captured work does not run before its graph is launched.
            if let Some(fence) = Fence::try_record(stream_state)? {
                fence.wait()?;
            }
        }
        // The work of a stream whose capture has begun since may still use the memory.
        self.check_can_sleep(state)?;
        Ok(self.heaps_of(state).iter().try_for_each(|heap| heap.process_events())?)
    }

    /// Removes the memory of a pool that was freed while it slept. A pool without memory wakes.
    pub(crate) fn forget_freed_asleep(&self, state: &PoolState) {
        // A progress callback may call this; a later call then removes the freed blocks.
        let Ok(_turn) = state.turn() else { return };
        if state.is_asleep() {
            self.forget_freed(state);
            self.serve_unless_away(state);
        }
    }

    /// Removes the chunks and contents of a pool that were freed while it slept, unless graphs may use them.
    fn forget_freed(&self, state: &PoolState) {
        if let Some(offload) = self.offload(state).filter(|_| !state.is_used()) {
            offload.lock().settle_unused();
        }
        if state.may_release() {
            for heap in self.heaps_of(state) {
                heap.forget_idle_chunks();
            }
        }
        if let Some(offload) = self.offload(state) {
            offload.lock().forget_freed(state.keeps());
        }
    }

    fn offload(&self, state: &PoolState) -> Option<Arc<Mutex<OffloadState<D>>>> {
        self.offloads.lock().get(&state.id).map(Arc::clone)
    }

    /// Fails if a heap accepts no requests because its pool sleeps.
    pub(crate) fn check_awake(heap: &Arc<Heap<D>>) -> Result<(), Error> {
        let pool = heap.pool();
        // A thread that puts the pool to sleep marks the pool first, and then the heap under this lock.
        let mut state = heap.state.lock();
        if state.asleep {
            pool.map_or(Ok(()), |pool| pool.check_awake())?;
            // The heap was created while its pool woke.
            state.asleep = false;
        }
        Ok(())
    }
}
