//! Releases unused memory to the device.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::Device;

use super::Allocator;
use crate::allocator::allocator_state::AllocatorState;
use crate::error::{Error, sum_all};
use crate::fence::Fence;
use crate::heap::Heap;
use crate::observe::history::Level;
use crate::pool::PoolId;

impl<D: Device> Allocator<D> {
    /// Releases every unused segment to the device. Returns the number of released bytes.
    ///
    /// The call waits for blocks that other streams still use, unless `never_block` is set. It also waits for the
    /// streams of the released segments, as the driver does. It does not wait for elastic segments. Their memory that a
    /// stream may still use is released later, and the result does not include it.
    ///
    /// The call returns a failure of the driver after it has released everything else.
    pub fn empty_cache(&self) -> Result<u64, Error> {
        self.shared().origin.check()?;
        let _gathered = self.shared().history.gather(Level::All);
        let _relaxed = self.shared().relax_capture();
        let settled = self.inner.wait_for_abandoned_graphs();
        for pool in self.inner.pools.select(|pool| !pool.is_used()) {
            self.inner.forget_freed_asleep(&pool);
        }
        let mut heaps = self.inner.heaps.all();
        heaps.retain(|heap| heap.may_release());
        for heap in &heaps {
            // The calls below retry after a failure, and return it.
            let _ = heap.process_events();
        }
        let (elastic, direct): (Vec<_>, Vec<_>) = heaps.iter().partition(|heap| heap.is_elastic());
        for fence in elastic.iter().flat_map(|heap| heap.all_fences()) {
            if !matches!(fence.passes_soon(), Ok(true)) {
                break;
            }
        }
        let fences: Vec<_> = direct.iter().flat_map(|heap| heap.all_fences()).collect();
        if !self.shared().settings.never_block.load(Relaxed) {
            // It counts even if nothing is waited for, as in PyTorch.
            self.shared().totals.waits.fetch_add(1, Relaxed);
            // A block whose wait fails stays; the others are released.
            self.shared().callbacks.waiting(|| {
                for fence in &fences {
                    let _ = fence.wait();
                }
            });
        }
        self.inner.ipc.close_imports(self.shared());
        let past = self.shared().uncached.free_again(self.device());
        let emptied = sum_all(heaps.iter().map(|heap| heap.empty()).chain([past]));
        let trimmed = self.inner.trim_driver_pool(&heaps);
        self.inner.forget_pools(PoolId::DEFAULT, usize::MAX);
        settled?;
        let bytes = emptied?;
        trimmed.map(|()| bytes)
    }
}

impl<D: Device> AllocatorState<D> {
    /// Returns the unused memory of the driver's pool to the device, after a wait for the streams that freed it.
    pub(crate) fn trim_driver_pool(&self, heaps: &[Arc<Heap<D>>]) -> Result<(), Error> {
        let settings = &self.shared.settings;
        if !settings.is_driver_pool() {
            return Ok(());
        }
        for heap in heaps.iter().filter(|heap| heap.policy().driver_pool && !settings.never_block.load(Relaxed)) {
            if let Some(fence) = Fence::try_record(&heap.stream_state)? {
                fence.wait()?;
            }
        }
        Ok(self.shared.device.stream_ordered()?.trim(0)?)
    }
}
