//! The out-of-memory report: the statistics at the time of the failure.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::Device;

use crate::blocks::BlockState;
use crate::heap::HeapCopy;
use crate::observe::callbacks::TraceAction;
use crate::observe::history::RawStack;
use crate::out_of_memory::{AllocationSites, OutOfMemory, PoolFigures, StackUse};
use crate::pool::PoolId;
use crate::retry::Retry;
use crate::stats::Counted;

impl<D: Device> Retry<'_, D> {
    pub(super) fn report(&self) -> OutOfMemory {
        let shared = self.shared;
        let now = |measure| shared.peaks.now(measure);
        let (allocated, reserved) = (now(Counted::AllocatedBytes), now(Counted::ReservedBytes));
        let memory = shared.device.memory_info().ok();
        let rejected = self.is_rejected();
        if rejected {
            shared.totals.rejections.fetch_add(1, Relaxed);
        }
        let free = memory.map(|memory| memory.free);
        self.heap.note_exhaustion(free.unwrap_or(0), self.rounded);
        self.heap.tell(TraceAction::OutOfMemory, free.unwrap_or(0), self.rounded);
        let heaps: Vec<HeapCopy> = self.inner.heaps.all().iter().map(|heap| heap.copy()).collect();
        let ours = reserved + shared.uncached.bytes();
        let blocks = heaps.iter().flat_map(|heap| heap.blocks.blocks());
        let free_blocks = blocks.filter(|(_, block)| HeapCopy::is_free(block));
        let free_blocks: Vec<u64> = free_blocks.map(|(_, block)| block.bytes()).collect();
        let pool = self.heap.pool();
        OutOfMemory {
            device: shared.device.info().ordinal,
            pool: pool.as_ref().map_or(PoolId::DEFAULT, |pool| pool.id),
            requested: self.wanted.request.requested,
            segment: self.segment,
            total: memory.map(|memory| memory.total),
            free,
            elsewhere: memory.map(|m| m.total.saturating_sub(m.free).saturating_sub(ours)),
            limit: shared.settings.limit(),
            allocated,
            reserved,
            pending: now(Counted::PendingBytes).saturating_sub(allocated),
            largest_free: free_blocks.iter().copied().max().unwrap_or(0),
            fragmented: free_blocks.iter().filter(|bytes| **bytes < self.rounded).sum(),
            pools: self.pool_figures(&heaps),
            rejected,
            never_block: !self.may_wait(),
            capturing: self.heap.stream_state.is_capturing(),
            elastic: (shared.device.virtual_memory().is_ok() && pool.is_none_or(|pool| pool.permits_elastic()))
                .then(|| self.heap.elastic.is_some()),
            sites: self.sites(&heaps),
        }
    }

    fn pool_figures(&self, heaps: &[HeapCopy]) -> Vec<PoolFigures> {
        let mut pools: BTreeMap<PoolId, PoolFigures> = BTreeMap::new();
        for heap in heaps.iter().filter(|heap| heap.reserved > 0) {
            let pool = pools.entry(heap.pool).or_insert(PoolFigures::new(heap.pool));
            pool.reserved += heap.reserved;
            for (_, block) in heap.blocks.blocks() {
                match block.state {
                    BlockState::Allocated => pool.allocated += block.bytes(),
                    BlockState::Pending => pool.pending += block.bytes(),
                    _ if HeapCopy::is_free(block) => pool.largest_free = pool.largest_free.max(block.bytes()),
                    _ => {}
                }
            }
        }
        for serving in self.inner.pools.on_oom() {
            pools.entry(serving.id).and_modify(|pool| pool.use_on_oom = true);
        }
        pools.into_values().collect()
    }

    /// The memory in use by stack, as far as the history has recorded it. The caller may hold locks: nothing is resolved.
    fn sites(&self, heaps: &[HeapCopy]) -> AllocationSites {
        let Some(source) = self.shared.history.source() else { return AllocationSites::default() };
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
        let memory = by_stack.into_iter().map(|(stack, (bytes, blocks))| (RawStack(stack), bytes, blocks));
        let sites = AllocationSites::new(
            source,
            memory.map(|(stack, bytes, blocks)| StackUse { stack, bytes, blocks }).collect(),
        );
        self.shared.history.note_report(&sites);
        sites
    }
}
