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
mod stats;
mod uses;

use cachette_hal::{Device, StreamRef};

use crate::allocator::Allocator;
use crate::error::{Error, PointerProblem};
use crate::state::AllocatorState;
use crate::stats::Stat;

use bucket::{PinnedPlace, PinnedState};
use cache::{BucketGuard, PinnedCache};

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
        let allocated = self.inner.pinned.allocate(bytes, PinnedState::Owned)?;
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
            self.inner.pinned.reset(Stat::reset_peak);
        }
    }

    /// Makes every sum and count since the start zero.
    pub fn reset_accumulated_stats(&self) {
        if !self.inner.shared.origin.is_inherited() {
            self.inner.pinned.reset_totals();
        }
    }

    /// Allocates as [`allocate`](Self::allocate) does; the address, null for no bytes.
    #[inline]
    pub fn allocate_raw(&self, bytes: usize) -> Result<*mut u8, Error> {
        if bytes == 0 {
            return Ok(std::ptr::null_mut());
        }
        let (_, ptr) = self.inner.pinned.allocate(bytes, PinnedState::Raw)?;
        Ok(ptr.as_ptr())
    }

    /// Frees what [`allocate_raw`](Self::allocate_raw) gave, or
    /// [`PinnedAllocation::into_raw`](PinnedAllocation::into_raw); null is nothing.
    ///
    /// After a failure of the driver the memory counts as freed all the same, and becomes free later. In a forked
    /// child nothing happens.
    pub fn free_raw(&self, ptr: *mut u8) -> Result<(), Error> {
        if ptr.is_null() || self.inner.shared.origin.is_inherited() {
            return Ok(());
        }
        let cache = &self.inner.pinned;
        let (bucket, place) = cache.find(ptr.addr(), &[PinnedState::Raw])?;
        cache.free_held(bucket, place).map_or(Ok(()), |freed| Ok(freed.end()?))
    }

    /// Says that work in `stream` uses the memory; see
    /// [`PinnedAllocation::record_stream`](PinnedAllocation::record_stream). Null is nothing.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::adopt_stream`](crate::Allocator::adopt_stream).
    pub unsafe fn record_stream_raw(&self, ptr: *mut u8, stream: StreamRef) -> Result<(), Error> {
        if ptr.is_null() {
            return Ok(());
        }
        self.inner.shared.origin.check()?;
        let cache = &self.inner.pinned;
        let (_, place) = cache.find(ptr.addr(), &[PinnedState::Raw, PinnedState::Owned])?;
        cache.record_use(place, &self.inner.heap_of_raw(stream)?.stream_state);
        Ok(())
    }
}

impl<D: Device> PinnedCache<D> {
    /// The block that begins at `address`, in its locked bucket, if it is in one of `states`.
    fn find(&self, address: usize, states: &[PinnedState]) -> Result<(BucketGuard<'_, D>, PinnedPlace), Error> {
        // A hint: the block may be gone by now.
        let over = self.table.lock().range(..=address).next_back().map(|(start, place)| (*start, *place));
        let why = match over {
            Some((start, place)) if address - start < place.bytes() => {
                let bucket = self.bucket(place).lock();
                match bucket.state_at(place.slot, start) {
                    state if start == address && states.contains(&state) => return Ok((bucket, place)),
                    PinnedState::Raw | PinnedState::Owned if start != address => {
                        PointerProblem::Interior { start: start as u64, offset: (address - start) as u64 }
                    }
                    PinnedState::Owned => PointerProblem::Owned,
                    PinnedState::Pending => PointerProblem::FreedTwice,
                    PinnedState::Raw | PinnedState::Free | PinnedState::Leaving | PinnedState::Vacant => {
                        PointerProblem::Free
                    }
                }
            }
            _ => PointerProblem::Foreign,
        };
        Err(Error::InvalidPinnedPointer { address: address as u64, why })
    }
}
