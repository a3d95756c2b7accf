//! Sleep: a pool gives up its memory and keeps its addresses.
//!
//! A program that works in phases, such as one that generates and trains in turns, needs the memory of one phase in
//! the other. A pool that sleeps gives all its physical memory back to the device. Allocations stay where they are,
//! and graphs that were captured on them stay good; they just must not be used. When the pool wakes, there is memory
//! again at the same addresses, with the same bytes in it if they were kept.
//!
//! ```
//! use cachette::sleep::Contents;
//! use cachette::{Allocator, Backends};
//!
//! let config = "expandable_segments:True".parse()?; // addresses and memory must be apart
//! let allocator = Allocator::with_config(Backends::open("host")?, &config);
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
//! * Memory may be freed. What is free when the pool wakes is neither copied back nor given memory, unless graphs may
//!   use it.
//! * Work that the caller queues past this crate, by an address, faults as it would after a free.
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
//! Several pools can sleep and wake as one, by a tag that they were made with:
//! [`PoolOptions::tag`](crate::PoolOptions::tag), [`Allocator::sleep_tagged`], [`Allocator::wake_tagged`].

mod chunk;
pub(crate) mod offload;
mod pool_ops;
pub(crate) mod staging;
mod values;

use cachette_hal::Device;

use crate::allocator::Allocator;
use crate::error::Error;
use crate::pool::{Pool, PoolId, PoolProblem};

pub(crate) use offload::OffloadState;
pub(crate) use staging::StagingStore;
pub use values::{Contents, Progress, SleepStats};

impl<D: Device> Pool<D> {
    /// Gives all memory of the pool back to the device, and keeps every address.
    ///
    /// It first waits for everything that is queued in streams of this allocator, and for buffer calls under way. Work
    /// in streams that the allocator never saw is the caller's to wait for.
    pub fn sleep(&self, contents: Contents) -> Result<SleepStats, Error> {
        self.sleep_with(contents, |_| {})
    }

    /// As [`sleep`](Self::sleep), and tells how far it has come.
    pub fn sleep_with(&self, contents: Contents, mut progress: impl FnMut(Progress)) -> Result<SleepStats, Error> {
        self.allocator().inner().put_to_sleep(&self.state, contents, &mut progress)
    }

    /// Gets memory for the pool again, at the same addresses and with the bytes that were kept; its bytes.
    ///
    /// Where the device has too little, the unused memory of other pools goes first. That waits for streams that still
    /// use it, unless the configuration forbids to wait.
    pub fn wake(&self) -> Result<u64, Error> {
        self.wake_with(|_| {})
    }

    /// As [`wake`](Self::wake), and tells how far it has come.
    pub fn wake_with(&self, mut progress: impl FnMut(Progress)) -> Result<u64, Error> {
        let inner = self.allocator().inner();
        match inner.wake_up(&self.state, &mut progress) {
            Err(Error::Pool { why: PoolProblem::NoMemory { .. }, .. }) => {
                self.allocator().empty_cache()?;
                inner.wait_for_unmaps()?;
                inner.wake_up(&self.state, &mut progress)
            }
            woken => woken,
        }
    }

    /// Whether the pool sleeps.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.state.is_asleep()
    }
}

impl<D: Device> Allocator<D> {
    /// Lets every pool with this tag sleep; see [`Pool::sleep`].
    ///
    /// If one of them cannot, those that fell asleep in this call are woken again.
    pub fn sleep_tagged(&self, tag: &str, contents: Contents) -> Result<SleepStats, Error> {
        let mut all = SleepStats::default();
        let mut asleep: Vec<Pool<D>> = Vec::new();
        for pool in self.pools_tagged(tag)? {
            let was_awake = !pool.is_asleep();
            let slept = pool.sleep(contents).inspect_err(|_| {
                // The first failure is what the caller must know; whatever stays asleep can be woken later.
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

    /// Wakes every pool with this tag; the bytes of their memory.
    pub fn wake_tagged(&self, tag: &str) -> Result<u64, Error> {
        self.pools_tagged(tag)?.iter().try_fold(0, |bytes, pool| Ok(bytes + pool.wake()?))
    }

    /// Gets host memory for the contents of `bytes` of memory now, so that the first sleep need not: 32 GiB of it take
    /// seconds to get ready.
    pub fn prepare_contents(&self, bytes: u64) -> Result<(), Error> {
        let inner = self.inner();
        inner.shared.origin.check()?;
        let slabs = inner.store.take(&inner.shared, bytes).ok_or(PoolProblem::NoHostMemory.of(PoolId::DEFAULT))?;
        inner.store.put_back(slabs);
        Ok(())
    }

    /// Gives host memory back that kept the contents of pools which are awake now. Until then it serves the next
    /// sleep; its bytes.
    #[expect(clippy::must_use_candidate, reason = "the figure is for those who want it")]
    pub fn release_contents(&self) -> u64 {
        if self.is_inherited() { 0 } else { self.inner().store.clear() }
    }
}
