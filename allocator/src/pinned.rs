//! Pinned host memory, cached.
//!
//! Copies between the host and the device run asynchronously only from and to pinned memory. Making it takes
//! milliseconds, and freeing it waits for the whole device. So memory that is freed is kept, and serves the next
//! request of its size without a driver call.
//!
//! ```
//! use cachette::{Allocator, Backends};
//!
//! let allocator = Allocator::new(Backends::open("host")?);
//! let stream = allocator.create_stream()?;
//! let mut staged = allocator.pinned().allocate(40 << 10)?;
//! // SAFETY: 1. no device knows the memory yet.
//! unsafe { staged.as_mut_slice() }.fill(7);
//! // … a copy from `staged` is queued in `stream` …
//! staged.record_stream(&stream);
//! drop(staged); // serves others once `stream` has come so far
//! assert_eq!(allocator.pinned().stats().allocated_bytes.current, 64 << 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod allocation;
mod bucket;
pub(crate) mod cache;
mod memory;
mod miss;
pub(crate) mod prefault;
mod raw;
mod stats;
mod uses;
mod worker;

use cachette_hal::Device;

use crate::allocator::Allocator;
use crate::error::Error;
use crate::state::AllocatorState;

pub use allocation::PinnedAllocation;
pub use stats::{PinnedStats, TimeStat};

/// The pinned host memory of an allocator: [`Allocator::pinned`].
#[derive(Clone, Copy, Debug)]
pub struct Pinned<'a, D: Device> {
    inner: &'a AllocatorState<D>,
}

impl<D: Device> Allocator<D> {
    /// Pinned host memory, which the device copies from and to asynchronously.
    #[must_use]
    pub fn pinned(&self) -> Pinned<'_, D> {
        Pinned { inner: self.inner() }
    }
}

impl<D: Device> Pinned<'_, D> {
    /// Allocates `bytes` bytes, rounded up to a power of two.
    ///
    /// The block of that size that was freed last serves. The memory belongs to no stream: every stream that uses it
    /// is recorded by [`PinnedAllocation::record_stream`].
    #[inline]
    pub fn allocate(&self, bytes: usize) -> Result<PinnedAllocation<D>, Error> {
        if bytes == 0 {
            return Ok(PinnedAllocation::empty());
        }
        let allocated = self.inner.pinned.allocate(bytes, false)?;
        Ok(PinnedAllocation::new(&self.inner.pinned, allocated, bytes))
    }

    /// Gives every free block back to the driver, and says how many bytes that were.
    ///
    /// The driver waits for the whole device. Blocks that streams or graphs still use stay, and so does the reserve
    /// segment. A block that the driver fails to take back stays too; the first such failure is the error, unless
    /// `pinned_free_catch_all:True` swallows it. [`Allocator::empty_cache`] leaves pinned memory alone.
    pub fn empty_cache(&self) -> Result<u64, Error> {
        self.inner.shared.origin.check()?;
        let _relaxed = self.inner.shared.relax_capture();
        self.inner.wait_for_left_graphs()?;
        self.inner.pinned.empty()
    }

    /// What was done, and what is held.
    #[must_use]
    pub fn stats(&self) -> PinnedStats {
        if self.inner.shared.origin.is_inherited() { PinnedStats::default() } else { self.inner.pinned.stats() }
    }

    /// Makes every peak what is current.
    pub fn reset_peak_stats(&self) {
        if !self.inner.shared.origin.is_inherited() {
            self.inner.pinned.reset_peaks();
        }
    }

    /// Makes every sum and count since the start zero.
    pub fn reset_accumulated_stats(&self) {
        if !self.inner.shared.origin.is_inherited() {
            self.inner.pinned.reset_totals();
        }
    }
}
