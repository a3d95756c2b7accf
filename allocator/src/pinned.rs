//! Pinned host memory, cached.
//!
//! Copies between the host and the device run asynchronously only from and to pinned memory. Its allocation takes
//! milliseconds, and its free waits for the whole device. So freed memory is kept, and later requests reuse it without
//! a driver call.
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
//! assert_eq!(allocator.pinned().stats().active_bytes.peak, 40 << 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod allocation;
mod blocks;
pub(crate) mod cache;
mod memory;
pub(crate) mod prefault;
mod stats;
mod uses;

use cachette_hal::{AnyDevice, Device, StreamRef};

use crate::allocator::Allocator;
use crate::allocator::allocator_state::AllocatorState;
use crate::error::{Error, PointerProblem};
use crate::label::Label;

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
    /// Allocates `bytes` bytes. The block is at most 511 bytes larger, or 4,095 bytes above 1 MiB.
    ///
    /// The request gets the best fitting free block. The memory belongs to no stream: the caller records every
    /// stream that uses it with [`PinnedAllocation::record_stream`].
    #[inline]
    pub fn allocate(&self, bytes: u64) -> Result<PinnedAllocation<D>, Error> {
        let cache = &self.inner.pinned;
        match cache.allocate(bytes, Label::OWNED)? {
            Some(allocated) => Ok(PinnedAllocation::new(cache, allocated, bytes)),
            None => Ok(PinnedAllocation::empty()),
        }
    }

    /// Releases every segment without a block in use to the driver. Returns the number of released bytes.
    ///
    /// The driver waits for the whole device. Blocks that streams or graphs still use keep their segments, and the
    /// reserve segment stays. A segment that the driver fails to free also stays. The first failure is returned, unless
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
        self.inner.pinned.reset_peaks();
    }

    /// Sets every sum and count to zero.
    pub fn reset_accumulated_stats(&self) {
        self.inner.pinned.reset_totals();
    }

    /// Allocates as [`allocate`](Self::allocate) does. Returns the address, or null for no bytes.
    #[inline]
    pub fn allocate_raw(&self, bytes: u64) -> Result<*mut u8, Error> {
        let allocated = self.inner.pinned.allocate(bytes, Label::NONE)?;
        Ok(allocated.map_or(std::ptr::null_mut(), |(_, ptr)| ptr.as_ptr()))
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
        let blocks = cache.blocks.lock();
        let id = blocks.find(ptr.addr() as u64, false).map_err(|why| invalid(ptr, why))?;
        cache.free_held(blocks, id).map_or(Ok(()), |freed| Ok(freed.end()?))
    }

    /// Records that work in `stream` of `owner` uses the memory; see
    /// [`PinnedAllocation::record_stream`](PinnedAllocation::record_stream). Null is ignored.
    ///
    /// `owner` is the allocator of the pinned memory, or of another device.
    ///
    /// # Safety
    ///
    /// As for [`Allocator::adopt_stream`](crate::Allocator::adopt_stream) of `owner`.
    pub unsafe fn record_stream_raw(&self, ptr: *mut u8, owner: &Allocator<D>, stream: StreamRef) -> Result<(), Error> {
        if ptr.is_null() {
            return Ok(());
        }
        let (cache, owner) = (&self.inner.pinned, owner.inner());
        let id = cache.blocks.lock().find(ptr.addr() as u64, true).map_err(|why| invalid(ptr, why))?;
        cache.record_use(id, &owner.heap_of_raw(stream)?.stream_state, Some(&owner.routes));
        Ok(())
    }
}

fn invalid(ptr: *mut u8, why: PointerProblem) -> Error {
    Error::InvalidPinnedPointer { address: ptr.addr() as u64, why }
}
