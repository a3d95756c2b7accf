//! The last steps: memory that other processes and evictable pools hold.

use std::mem;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device};

use crate::allocator::allocator_state::AllocatorState;
use crate::error::Error;
use crate::pool::PoolId;
use crate::reclaim::Reclaim;
use crate::retry::Retry;
use crate::retry::wait::release_whole;

impl<D: Device> Retry<'_, D> {
    /// Obtains memory for the request from other processes and from evictable pools. Returns whether to try again.
    ///
    /// The thread holds no lock, so that this process can answer others meanwhile.
    pub(super) fn obtain_memory(&self) -> bool {
        if self.shared.settings.never_block.load(Relaxed) {
            return false;
        }
        // A request for a decided place can also fail because the place is taken for now.
        let least = u64::from(self.wanted.place.is_none());
        let shortage = || self.inner.shortage(self.segment).max(least);
        let may_wait = self.may_wait();
        self.inner.obtain(&self.others, self.heap.pool_id(), may_wait, shortage) || (may_wait && self.others.wait())
    }

    /// Calls `fill` until it returns `true`, and obtains memory in between. It returns `false` if memory is short.
    ///
    /// Fails like a request, with a report, when no more memory can be obtained.
    pub(crate) fn fill(&self, fill: impl Fn() -> Result<bool, Error>) -> Result<(), Error> {
        self.inner.join_neighbours();
        let total = self.shared.device.info().total_memory;
        let (mut emptied, may_help) = (false, self.segment <= total);
        while !(may_help && fill()?) {
            if may_help && !mem::replace(&mut emptied, true) {
                self.callbacks_and_caches()?;
            } else if !(may_help && self.obtain_memory()) {
                return Err(self.fail(self.report()));
            }
        }
        Ok(())
    }

    /// Lets the program free memory, and releases every idle segment of every stream.
    fn callbacks_and_caches(&self) -> Result<(), Error> {
        self.shared.callbacks.run_free_memory_callbacks();
        if !self.may_wait() {
            return Ok(());
        }
        let settled = self.inner.wait_for_abandoned_graphs();
        let released = self.donors().iter().map(|heap| release_whole(heap)).fold(settled, hal::Result::and);
        Ok(released?)
    }
}

impl<D: Device> AllocatorState<D> {
    /// Obtains memory: idle memory of `others`, then evictable pools but `own`, then all that the others release. Returns
    /// whether to try again. It evicts, here and elsewhere, only if the request `may_wait`.
    pub(crate) fn obtain(
        &self,
        others: &Reclaim<'_, D>,
        own: PoolId,
        may_wait: bool,
        shortage: impl FnOnce() -> u64,
    ) -> bool {
        let evict = || self.shared.callbacks.waiting(|| self.evict(own, None, shortage)) > 0;
        others.idle() || (may_wait && evict()) || others.last(may_wait)
    }
}
