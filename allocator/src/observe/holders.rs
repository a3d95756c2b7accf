//! Who holds memory of the device, as a program asks after a sleep.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use cachette_hal::{Device, MemoryInfo};

use crate::allocator::Allocator;
use crate::allocator::allocator_state::AllocatorState;
use crate::label::{Label, LabelledBytes};
use crate::pool::PoolId;
use crate::stats::Counted;

/// Who holds memory of the device at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryHolders {
    /// Bytes of blocks in use, by the [label](crate::Label) of their library, the largest first. Memory without a name
    /// has the empty one. Pools that sleep hold nothing.
    pub by_label: Vec<(&'static str, u64)>,
    /// Bytes that pools hold from the device, the largest first: the default pool, and others by id and tag.
    pub by_pool: Vec<(PoolId, String, u64)>,
    /// Bytes that the allocator holds and nobody uses: `empty_cache` returns them, but for parts of segments in use.
    pub cached: u64,
    /// Bytes that this allocator does not hold: contexts, libraries such as NCCL, other processes. `None` if the driver
    /// query failed.
    pub outside: Option<u64>,
}

impl<D: Device> Allocator<D> {
    /// Returns who holds memory of the device now: what a sleep has left, and whose it is.
    #[must_use]
    pub fn memory_holders(&self) -> MemoryHolders {
        self.inner().memory_holders()
    }
}

impl<D: Device> AllocatorState<D> {
    pub(crate) fn memory_holders(&self) -> MemoryHolders {
        let mut labels = LabelledBytes::new();
        let mut in_use = 0;
        let mut by_pool: BTreeMap<PoolId, (String, u64)> = BTreeMap::new();
        for heap in self.heaps.iter().filter(|heap| heap.has_memory()) {
            let pool = by_pool.entry(heap.pool_id()).or_insert_with(|| {
                let tag = heap.pool().map_or_else(String::new, |pool| pool.options.tag.clone());
                (tag, 0)
            });
            pool.1 += heap.reserved();
            let state = heap.state.lock();
            for (_, block) in state.blocks.iter() {
                if block.is_in_use() {
                    labels.add(block.label, block.bytes());
                    in_use += block.bytes();
                }
            }
        }
        let (reserved, uncached) = (self.shared.peaks.now(Counted::ReservedBytes), self.shared.uncached.bytes());
        if uncached > 0 {
            labels.add(Label::NONE, uncached);
        }
        let mut by_pool: Vec<_> = by_pool.into_iter().map(|(id, (tag, bytes))| (id, tag, bytes)).collect();
        by_pool.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(*bytes));
        let outside =
            |memory: MemoryInfo| (memory.total - memory.free).saturating_sub(reserved).saturating_sub(uncached);
        let outside = self.shared.device.memory_info().ok().map(outside);
        MemoryHolders { by_label: labels.named(), by_pool, cached: reserved.saturating_sub(in_use), outside }
    }
}
