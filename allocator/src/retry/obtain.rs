//! The last steps: memory that other processes and evictable pools hold.

use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::Device;

use crate::retry::Retry;

impl<D: Device> Retry<'_, D> {
    /// Obtains memory for the request from other processes and from evictable pools. Returns whether to try again.
    ///
    /// The thread holds no lock, so that this process can answer others meanwhile.
    pub(super) fn obtain_memory(&self) -> bool {
        if self.shared.settings.never_block.load(Relaxed) {
            return false;
        }
        let (others, may_wait) = (&self.others, self.may_wait());
        others.idle() || (may_wait && self.evict() > 0) || others.last(may_wait) || (may_wait && others.wait())
    }

    /// Evicts pools for the request. Returns the released bytes.
    fn evict(&self) -> u64 {
        // A request for a decided place can also fail because the place is taken for now.
        let least = u64::from(self.wanted.place.is_none());
        let shortage = || self.inner.shortage(self.segment).max(least);
        self.shared.callbacks.waiting(|| self.inner.evict(self.heap.pool_id(), None, shortage))
    }
}
