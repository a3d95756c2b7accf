//! Memory that is known by its address alone.

#![forbid(unsafe_code)]

use cachette_hal::{Device, StreamRef};

use crate::heaps::Heaps;

/// Memory that is known by its address alone: until the allocator goes it can be freed, and then it leaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeakedAllocation {
    /// The first byte.
    pub address: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// The stream it was allocated for; the default one for pinned memory, which is of none.
    pub stream: StreamRef,
}

/// Everything that is allocated by address, stream by stream.
pub(crate) fn leaks_of<D: Device>(heaps: &Heaps<D>) -> Vec<LeakedAllocation> {
    let heaps = heaps.all();
    heaps
        .iter()
        .flat_map(|heap| {
            let stream = heap.lane().stream();
            heap.raw_blocks().into_iter().map(move |(address, requested)| LeakedAllocation {
                address,
                requested,
                stream,
            })
        })
        .collect()
}
