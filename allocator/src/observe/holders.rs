//! Who holds memory of the device, as a program asks after a sleep.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use cachette_hal::{Device, MemoryInfo};

use crate::allocator::Allocator;

/// Who holds memory of the device at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryHolders {
    /// Bytes of blocks in use, by the [label](crate::Label) of their library, the largest first. Memory without a name
    /// has the empty one. Pools that sleep hold nothing.
    pub by_label: Vec<(&'static str, u64)>,
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
        let inner = self.inner();
        let mut by_label: BTreeMap<&'static str, u64> = BTreeMap::new();
        for heap in inner.heaps.iter().filter(|heap| heap.has_memory()) {
            let state = heap.state.lock();
            for (_, block) in state.blocks.iter() {
                if block.is_in_use() {
                    *by_label.entry(block.label.name().unwrap_or_default()).or_default() += block.bytes();
                }
            }
        }
        let in_use: u64 = by_label.values().sum();
        let (reserved, uncached) = (self.reserved_bytes(), inner.shared.uncached.bytes());
        if uncached > 0 {
            *by_label.entry("").or_default() += uncached;
        }
        let mut by_label: Vec<_> = by_label.into_iter().collect();
        by_label.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let outside =
            |memory: MemoryInfo| (memory.total - memory.free).saturating_sub(reserved).saturating_sub(uncached);
        let outside = self.device().memory_info().ok().map(outside);
        MemoryHolders { by_label, cached: reserved.saturating_sub(in_use), outside }
    }
}
