//! Memory that is known by its address alone.

#![forbid(unsafe_code)]

use cachette_hal::StreamRef;

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
