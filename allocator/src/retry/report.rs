//! The out-of-memory report: the statistics at the time of the failure.

use std::collections::BTreeMap;
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
        let ours = reserved + shared.uncached.bytes();
        let (pools, fragmented, stacks) = self.in_use();
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
            largest_free: pools.iter().map(|pool| pool.largest_free).max().unwrap_or(0),
            fragmented,
            pools,
            rejected,
            never_block: !self.may_wait(),
            capturing: self.heap.stream_state.is_capturing(),
            elastic: (shared.device.virtual_memory().is_ok() && pool.is_none_or(|pool| pool.permits_elastic()))
                .then(|| self.heap.elastic.is_some()),
            neighbours: self.others.neighbours(),
            sites: self.sites(stacks),
        }
    }

    /// Returns the figures of each pool, the bytes of free blocks that are too small, and the blocks in use with a stack.
    ///
    /// Heaps are not copied: memory for a copy takes longer to obtain than the walk.
    fn in_use(&self) -> (Vec<PoolFigures>, u64, Vec<StackUse>) {
        let mut pools: BTreeMap<PoolId, PoolFigures> = BTreeMap::new();
        let (mut fragmented, mut stacks) = (0, Vec::new());
        for heap in self.inner.heaps.all() {
            let id = heap.pool_id();
            let pool = pools.entry(id).or_insert(PoolFigures::new(id));
            let state = heap.lock_coalesced();
            pool.reserved += heap.reserved();
            for (id, block) in state.blocks.iter() {
                let bytes = block.bytes();
                match block.state {
                    BlockState::Allocated => pool.allocated += bytes,
                    BlockState::Pending => pool.pending += bytes,
                    _ if HeapCopy::is_free(block) => {
                        pool.largest_free = pool.largest_free.max(bytes);
                        fragmented += if bytes < self.rounded { bytes } else { 0 };
                        continue;
                    }
                    _ => continue,
                }
                let stack = NonZeroU32::new(state.stacks.of(id)).map(RawStack);
                stacks.extend(stack.map(|stack| StackUse { stack, bytes, blocks: 1 }));
            }
        }
        pools.retain(|_, pool| pool.reserved > 0);
        for serving in self.inner.pools.on_oom() {
            pools.entry(serving.id).and_modify(|pool| pool.use_on_oom = true);
        }
        (pools.into_values().collect(), fragmented, stacks)
    }

    /// The caller may hold locks, so stacks are counted and named when the report is read.
    fn sites(&self, stacks: Vec<StackUse>) -> AllocationSites {
        let Some(source) = self.shared.history.source() else { return AllocationSites::default() };
        let sites = AllocationSites::new(source, stacks);
        self.shared.history.note_report(&sites);
        sites
    }
}
