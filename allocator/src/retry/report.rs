//! The out-of-memory report: the statistics at the time of the failure.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::Device;

use crate::blocks::BlockState;
use crate::heap::HeapCopy;
use crate::observe::callbacks::TraceAction;
use crate::observe::history::RawStack;
use crate::out_of_memory::{OutOfMemory, PoolFigures, TopAllocationSite};
use crate::pool::PoolId;
use crate::retry::Retry;
use crate::stats::Measure;

/// The maximum number of allocation sites in a report.
const MOST_HOLDERS: usize = 5;

impl<D: Device> Retry<'_, D> {
    /// Collects the statistics.
    pub(super) fn report(&self) -> OutOfMemory {
        let shared = self.shared;
        let now = |measure| shared.peaks.now(measure);
        let allocated = now(Measure::AllocatedBytes);
        let reserved = now(Measure::ReservedBytes);
        let memory = shared.device.memory_info().ok();
        let rejected = shared.settings.rejects.load(Relaxed) && !self.within_limit();
        if rejected {
            shared.totals.rejections.fetch_add(1, Relaxed);
        }
        let free = memory.map(|memory| memory.free);
        self.tell_exhaustion(free.unwrap_or(0));
        let heaps: Vec<HeapCopy> = self.heaps.all().iter().map(|heap| heap.copy()).collect();
        let ours = reserved + shared.uncached.bytes();
        let (largest_free, fragmented) = self.free_blocks(&heaps);
        let pool = self.heap.pool();
        OutOfMemory {
            device: shared.device.info().ordinal,
            pool: pool.as_ref().map_or(PoolId::DEFAULT, |pool| pool.id),
            requested: self.request.requested,
            segment: self.need.segment,
            total: memory.map(|memory| memory.total),
            free,
            elsewhere: memory.map(|m| m.total.saturating_sub(m.free).saturating_sub(ours)),
            limit: shared.settings.limit(),
            allocated,
            reserved,
            pending: now(Measure::ActiveBytes).saturating_sub(allocated),
            largest_free,
            fragmented,
            pools: self.pool_figures(&heaps),
            holders: self.holders(&heaps),
            rejected,
            never_block: !self.may_wait(),
            capturing: self.heap.stream_state().is_capturing(),
            elastic: (shared.device.virtual_memory().is_ok() && pool.is_none_or(|pool| pool.permits_elastic()))
                .then(|| self.heap.elastic().is_some()),
        }
    }

    /// Notifies the history and the trackers.
    fn tell_exhaustion(&self, free: u64) {
        let rounded = self.need.rounded;
        self.heap.note_exhaustion(free, rounded);
        if self.shared.callbacks.is_tracked() {
            self.heap.tell_trackers(TraceAction::OutOfMemory, free, rounded);
        }
    }

    /// The largest free block, and the bytes of the blocks that are too small, over all heaps.
    fn free_blocks(&self, heaps: &[HeapCopy]) -> (u64, u64) {
        let blocks = heaps.iter().flat_map(|heap| heap.blocks.blocks());
        let free = blocks.filter(|(_, block)| HeapCopy::is_free(block));
        free.fold((0, 0), |(largest, fragmented), (_, block)| {
            let bytes = block.bytes();
            let too_small = bytes < self.need.rounded;
            (bytes.max(largest), fragmented + if too_small { bytes } else { 0 })
        })
    }

    /// The memory of every pool, the default pool first.
    fn pool_figures(&self, heaps: &[HeapCopy]) -> Vec<PoolFigures> {
        let mut pools: Vec<PoolFigures> = Vec::new();
        for heap in heaps.iter().filter(|heap| heap.reserved > 0) {
            let known = pools.iter().position(|pool| pool.id == heap.pool);
            let index = known.unwrap_or_else(|| {
                pools.push(PoolFigures::new(heap.pool));
                pools.len() - 1
            });
            let pool = &mut pools[index];
            pool.reserved += heap.reserved;
            for (_, block) in heap.blocks.blocks() {
                match block.state {
                    BlockState::Allocated => pool.allocated += block.bytes(),
                    BlockState::Pending => pool.pending += block.bytes(),
                    _ if HeapCopy::is_free(block) => {
                        pool.largest_free = pool.largest_free.max(block.bytes());
                    }
                    _ => {}
                }
            }
        }
        for serving in self.pools.on_oom() {
            for pool in pools.iter_mut().filter(|pool| pool.id == serving.id) {
                pool.use_on_oom = true;
            }
        }
        pools.sort_by_key(|pool| pool.id);
        pools
    }

    /// The sites that allocated most of the memory in use, as far as the history has recorded them.
    fn holders(&self, heaps: &[HeapCopy]) -> Vec<TopAllocationSite> {
        let Some(source) = self.shared.history.source() else {
            return Vec::new();
        };
        let mut by_stack: HashMap<NonZeroU32, (u64, u64)> = HashMap::new();
        for heap in heaps {
            for (id, block) in heap.blocks.blocks() {
                let used = matches!(block.state, BlockState::Allocated | BlockState::Pending);
                if let Some(stack) = NonZeroU32::new(heap.stacks.of(id)).filter(|_| used) {
                    let (bytes, blocks) = by_stack.entry(stack).or_default();
                    *bytes += block.bytes();
                    *blocks += 1;
                }
            }
        }
        let mut holders: Vec<_> = by_stack.into_iter().collect();
        holders.sort_by_key(|(stack, (bytes, _))| (u64::MAX - bytes, *stack));
        holders.truncate(MOST_HOLDERS);
        let stacks: Vec<_> = holders.iter().map(|(stack, _)| RawStack(*stack)).collect();
        let holders = holders.into_iter().zip(source.resolve(&stacks));
        holders.map(|((_, (bytes, blocks)), stack)| TopAllocationSite { bytes, blocks, frames: stack.frames }).collect()
    }
}
