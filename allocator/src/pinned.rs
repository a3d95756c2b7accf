//! Pinned host memory, cached.
//!
//! Copies between the host and the device run asynchronously only from and to pinned memory. Its allocation takes
//! milliseconds, and its free waits for the whole device. So freed memory is kept, and the next request of its size
//! reuses it without a driver call.
//!
//! ```
//! use cachette::{Allocator, Backends};
//!
//! let allocator = Allocator::new(Backends::open("host")?);
//! let stream = allocator.create_stream()?;
//! let mut staged = allocator.pinned().allocate(40 << 10)?;
//! // SAFETY: 1. no device uses the memory yet.
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
pub(crate) mod prefault;
mod stats;
mod uses;

use cachette_hal::{AnyDevice, Device, StreamRef};

use crate::allocator::Allocator;
use crate::allocator::allocator_state::AllocatorState;
use crate::error::{Error, PointerProblem};
use crate::stats::Stat;

use bucket::{PinnedPlace, PinnedState};
use cache::{BucketGuard, PinnedCache};

pub use allocation::PinnedAllocation;
pub use stats::{PinnedStats, TimeStat};

/// The pinned host memory of an allocator; see [`Allocator::pinned`].
#[derive(Clone, Copy, Debug)]
pub struct Pinned<'a, D: Device = AnyDevice> {
    inner: &'a AllocatorState<D>,
}

impl<D: Device> Allocator<D> {
    /// Returns the pinned host memory, which the device copies from and to asynchronously.
    #[must_use]
    pub fn pinned(&self) -> Pinned<'_, D> {
        Pinned { inner: self.inner() }
    }
}

impl<D: Device> Pinned<'_, D> {
    /// Allocates `bytes` bytes, rounded up to a power of two.
    ///
    /// The request gets the last-freed block of that size. The memory belongs to no stream: the caller records every
    /// stream that uses it with [`PinnedAllocation::record_stream`].
    #[inline]
    pub fn allocate(&self, bytes: usize) -> Result<PinnedAllocation<D>, Error> {
        if bytes == 0 {
            return Ok(PinnedAllocation::empty());
        }
        let allocated = self.inner.pinned.allocate(bytes, PinnedState::Owned)?;
        Ok(PinnedAllocation::new(&self.inner.pinned, allocated, bytes))
    }

    /// Releases every free block to the driver. Returns the number of released bytes.
    ///
    /// The driver waits for the whole device. Blocks that streams or graphs still use stay, and so does the reserve
    /// segment. A block that the driver fails to free also stays. The first failure is returned, unless
    /// `pinned_free_catch_all:True` is set. [`Allocator::empty_cache`] does not release pinned memory.
    pub fn empty_cache(&self) -> Result<u64, Error> {
        let _relaxed = self.inner.shared.relax_capture();
        let settled = self.inner.wait_for_abandoned_graphs();
        let emptied = self.inner.pinned.empty();
        settled?;
        emptied
    }

    /// Returns the statistics.
    #[must_use]
    pub fn stats(&self) -> PinnedStats {
        self.inner.pinned.stats()
    }

    /// Sets every peak to the current value.
    pub fn reset_peak_stats(&self) {
        self.inner.pinned.reset(Stat::reset_peak);
    }

    /// Sets every sum and count to zero.
    pub fn reset_accumulated_stats(&self) {
        self.inner.pinned.reset_totals();
    }

    /// Allocates as [`allocate`](Self::allocate) does. Returns the address, or null for no bytes.
    #[inline]
    pub fn allocate_raw(&self, bytes: usize) -> Result<*mut u8, Error> {
        if bytes == 0 {
            return Ok(std::ptr::null_mut());
        }
        let (_, ptr) = self.inner.pinned.allocate(bytes, PinnedState::Raw)?;
        Ok(ptr.as_ptr())
    }

    /// Frees memory from [`allocate_raw`](Self::allocate_raw) or
    /// [`PinnedAllocation::into_raw`](PinnedAllocation::into_raw). Null is ignored.
    ///
    /// After a failure of the driver the memory still counts as freed, and becomes available later. In a forked child
    /// the call does nothing.
    pub fn free_raw(&self, ptr: *mut u8) -> Result<(), Error> {
        if ptr.is_null() || self.inner.shared.origin.is_inherited() {
            return Ok(());
        }
        let cache = &self.inner.pinned;
        let (bucket, place) = cache.find(ptr.addr(), &[PinnedState::Raw])?;
        cache.free_held(bucket, place).map_or(Ok(()), |freed| Ok(freed.end()?))
    }

    /// Records that work in `stream` uses the memory; see
    /// [`PinnedAllocation::record_stream`](PinnedAllocation::record_stream). Null is ignored.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::adopt_stream`](crate::Allocator::adopt_stream).
    pub unsafe fn record_stream_raw(&self, ptr: *mut u8, stream: StreamRef) -> Result<(), Error> {
        if ptr.is_null() {
            return Ok(());
        }
        let cache = &self.inner.pinned;
        let (_, place) = cache.find(ptr.addr(), &[PinnedState::Raw, PinnedState::Owned])?;
        cache.record_use(place, &self.inner.heap_of_raw(stream)?.stream_state);
        Ok(())
    }
}

impl<D: Device> PinnedCache<D> {
    /// Returns the block that begins at `address`, in its locked bucket, if its state is one of `states`.
    fn find(&self, address: usize, states: &[PinnedState]) -> Result<(BucketGuard<'_, D>, PinnedPlace), Error> {
        // A hint: the block may have been released since.
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
