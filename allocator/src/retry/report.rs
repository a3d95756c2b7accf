//! The out-of-memory report: the statistics at the time of the failure.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::Device;

use crate::blocks::BlockState;
use crate::heap::HeapCopy;
use crate::label::LabelledBytes;
use crate::observe::callbacks::TraceAction;
use crate::observe::history::RawStack;
use crate::out_of_memory::{AllocationSites, OutOfMemory, PoolFigures, StackUse};
use crate::pool::PoolId;
use crate::retry::Retry;
use crate::stats::Counted;

/// What the heaps hold.
struct InUse {
    pools: Vec<PoolFigures>,
    /// Bytes of free blocks that are too small for the request.
    fragmented: u64,
    /// Bytes of the blocks of pools that sleep.
    asleep: u64,
    by_label: Vec<(&'static str, u64)>,
    /// The blocks in use that have a stack.
    stacks: Vec<StackUse>,
}

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
        let InUse { pools, fragmented, asleep, by_label, stacks } = self.in_use();
        let pool = self.heap.pool();
        let pool_id = pool.as_ref().map_or(PoolId::DEFAULT, |pool| pool.id);
        let guarded = self.inner.pools.select(|state| state.id != pool_id && state.is_guarded());
        let guarded = guarded.iter().flat_map(|state| self.inner.heaps_of(state)).map(|heap| heap.reserved()).sum();
        OutOfMemory {
            device: shared.device.info().ordinal,
            pool: pool_id,
            requested: self.wanted.request.requested,
            segment: self.segment,
            total: memory.map(|memory| memory.total),
            free,
            elsewhere: memory.map(|m| m.total.saturating_sub(m.free).saturating_sub(ours)),
            outside: shared.outside.stats().device.current,
            limit: shared.settings.limit(),
            host: shared.host_figures(),
            // A pool can fall asleep or wake between the two figures.
            allocated: allocated.saturating_sub(asleep),
            asleep,
            guarded,
            reserved,
            pending: now(Counted::PendingBytes).saturating_sub(allocated),
            largest_free: pools.iter().map(|pool| pool.largest_free).max().unwrap_or(0),
            fragmented,
            pools,
            by_label,
            rejected,
            never_block: !self.may_wait(),
            capturing: self.heap.stream_state.is_capturing(),
            elastic: (shared.device.virtual_memory().is_ok() && pool.is_none_or(|pool| pool.permits_elastic()))
                .then(|| self.heap.is_elastic()),
            neighbours: self.others.neighbours(),
            sites: self.sites(stacks),
        }
    }

    /// Heaps are not copied: memory for a copy takes longer to obtain than the walk.
    fn in_use(&self) -> InUse {
        let mut pools: BTreeMap<PoolId, PoolFigures> = BTreeMap::new();
        let mut labels = LabelledBytes::new();
        let (mut fragmented, mut asleep, mut stacks) = (0, 0, Vec::new());
        for heap in self.inner.heaps.all() {
            let id = heap.pool_id();
            let pool = pools.entry(id).or_insert(PoolFigures { id, ..PoolFigures::default() });
            let state = heap.lock_coalesced();
            if state.asleep {
                asleep += state
                    .blocks
                    .iter()
                    .filter(|(_, block)| block.is_in_use())
                    .map(|(_, block)| block.bytes())
                    .sum::<u64>();
                continue;
            }
            pool.reserved += heap.reserved();
            for (id, block) in state.blocks.iter() {
                let bytes = block.bytes();
                labels.add(block.label, if block.is_in_use() { bytes } else { 0 });
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
        InUse { pools: pools.into_values().collect(), fragmented, asleep, by_label: labels.named(), stacks }
    }

    /// The caller may hold locks, so stacks are counted and named when the report is read.
    fn sites(&self, stacks: Vec<StackUse>) -> AllocationSites {
        let Some(source) = self.shared.history.source() else { return AllocationSites::default() };
        let sites = AllocationSites::new(source, stacks);
        self.shared.history.note_report(&sites);
        sites
    }
}
