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
//! # What holds while a pool sleeps
//!
//! * Requests to it fail with [`PoolProblem::Asleep`], and so do captures, launches of its graphs, checkpoints and the
//!   calls of a [`Buffer`](crate::Buffer) in its memory.
//! * Memory can be freed. Free memory is neither created nor copied back when the pool wakes, unless graphs may use it.
//! * Work that the caller queues on an address of the pool faults, as it does after a free.
//! * `sleep` and `wake` are idempotent.
//!
//! # Failures
//!
//! `sleep` and `wake` either finish or leave the pool as it was. If memory is short or the limit leaves no room, `wake`
//! fails; the pool keeps its contents, and a later `wake` may succeed. The pool also stays asleep if a progress
//! callback panics, or if the driver fails at both an operation and its undoing. [`Pool::wake`] then continues where
//! it stopped.
//!
//! # Progress callbacks
//!
//! They run while the pool changes. Calls to other pools work normally. Calls of `sleep` or `wake` on the same pool
//! fail with [`PoolProblem::Changing`], and requests to it fail with [`PoolProblem::Asleep`]. A callback must not wait
//! for another thread that calls `sleep` or `wake` on the pool: that thread waits for this call.
//!
//! # Tags
//!
//! Several pools with the same tag can sleep and wake as one: [`PoolOptions::tag`](crate::PoolOptions::tag),
//! [`Allocator::sleep_tagged`], [`Allocator::wake_tagged`].

mod chunk;
mod heap;
pub(crate) mod offload;
mod pool_ops;
pub(crate) mod staging;

use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::Device;

use crate::allocator::Allocator;
use crate::error::Error;
use crate::pool::{Pool, PoolId, PoolProblem};

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
        self.allocator().inner().put_to_sleep(&self.state, contents, &mut progress)
    }

    /// Restores the memory of the pool at the same addresses, with the contents that were kept. Returns its bytes.
    ///
    /// If the device has too little memory, the allocator first releases the unused memory of other pools. That waits
    /// for streams that still use it, unless `never_block` is set.
    pub fn wake(&self) -> Result<u64, Error> {
        self.wake_with(|_| {})
    }

    /// Does the same as [`wake`](Self::wake), and reports progress.
    pub fn wake_with(&self, mut progress: impl FnMut(Progress)) -> Result<u64, Error> {
        let inner = self.allocator().inner();
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
        loop {
            let tried = in_flight.begin_attempt();
            let woken = inner.wake_up(&self.state, &mut progress);
            if !short(&woken) || !waits || !in_flight.may_change(tried) {
                return woken;
            }
            // Other threads are returning memory.
            in_flight.wait(tried);
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
