//! The unit of chunk sizes and addresses.

use cachette_hal::VirtualMemory;

/// The smallest chunk, whatever the driver allows: each chunk costs a call, and on some systems a file descriptor.
pub(crate) const SMALLEST_PAGE: u64 = 2 << 20;

/// The granularity of chunks and of the addresses that they are mapped at.
pub(crate) fn page(memory: &dyn VirtualMemory) -> u64 {
    memory.granularity().recommended.max(SMALLEST_PAGE)
}
