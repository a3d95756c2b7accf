//! Pinned memory by address alone, for callers in other languages.

use cachette_hal::{Device, StreamRef};

use super::Pinned;
use super::bucket::{PinnedPlace, PinnedState};
use super::cache::{BucketGuard, PinnedCache};
use crate::error::{Error, PointerProblem};

impl<D: Device> Pinned<'_, D> {
    /// Allocates as [`allocate`](Self::allocate) does; the address, null for no bytes.
    #[inline]
    pub fn allocate_raw(&self, bytes: usize) -> Result<*mut u8, Error> {
        if bytes == 0 { Ok(std::ptr::null_mut()) } else { Ok(self.inner.pinned.allocate(bytes, true)?.ptr.as_ptr()) }
    }

    /// Frees what [`allocate_raw`](Self::allocate_raw) gave, or
    /// [`PinnedAllocation::into_raw`](super::PinnedAllocation::into_raw); null is nothing.
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
    /// [`PinnedAllocation::record_stream`](super::PinnedAllocation::record_stream). Null is nothing.
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
        cache.record_use(place, self.inner.heap_of_raw(stream)?.stream_state());
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
