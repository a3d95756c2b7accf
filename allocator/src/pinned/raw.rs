//! Pinned memory by address alone, for callers in other languages.

use cachette_hal::{Device, StreamRef};

use super::Pinned;
use super::bucket::{PinnedPlace, PinnedState};
use super::cache::{PinnedCache, PinnedFreed};
use crate::error::{Error, PointerProblem};

impl<D: Device> Pinned<'_, D> {
    /// Allocates as [`allocate`](Self::allocate) does; the address, null for no bytes.
    #[inline]
    pub fn allocate_raw(&self, bytes: usize) -> Result<*mut u8, Error> {
        if bytes == 0 {
            return Ok(std::ptr::null_mut());
        }
        Ok(self.inner.pinned.allocate(bytes, true)?.ptr.as_ptr())
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
        match cache.free_raw_block(ptr.addr())? {
            Some(freed) => Ok(freed.end()?),
            None => Ok(()),
        }
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
        let place = cache.find(ptr.addr())?;
        let stream_state = self.inner.heap_of_raw(stream)?.stream_state();
        cache.record_use(place, stream_state);
        Ok(())
    }
}

impl<D: Device> PinnedCache<D> {
    /// Frees the raw block at `address`. If more work is left, [`PinnedFreed::end`] does it.
    fn free_raw_block(&self, address: usize) -> Result<Option<PinnedFreed<D>>, Error> {
        if let Some((start, place)) = self.block_over(address) {
            let bucket = self.bucket(place).lock();
            if start == address && bucket.state_at(place.slot, start) == PinnedState::Raw {
                return Ok(self.free_held(bucket, place));
            }
        }
        Err(self.diagnose(address))
    }

    /// The block at `address`, if a caller has it.
    fn find(&self, address: usize) -> Result<PinnedPlace, Error> {
        if let Some((start, place)) = self.block_over(address)
            && start == address
        {
            let state = self.bucket(place).lock().state_at(place.slot, start);
            if matches!(state, PinnedState::Raw | PinnedState::Owned) {
                return Ok(place);
            }
        }
        Err(self.diagnose(address))
    }

    /// The block in which `address` lies, with its start. A hint: it may be gone by now.
    fn block_over(&self, address: usize) -> Option<(usize, PinnedPlace)> {
        let table = self.table.lock();
        let (start, place) = table.range(..=address).next_back()?;
        (address - start < place.bytes()).then_some((*start, *place))
    }

    /// What is wrong with an address.
    #[cold]
    fn diagnose(&self, address: usize) -> Error {
        let why = match self.block_over(address) {
            None => PointerProblem::Foreign,
            Some((start, place)) => {
                let state = self.bucket(place).lock().state_at(place.slot, start);
                match state {
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
        };
        let address = address as u64;
        Error::InvalidPinnedPointer { address, why }
    }
}
