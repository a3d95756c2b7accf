//! Elastic segments: physical memory that follows the need.
//!
//! A heap whose source is elastic has wide ranges of addresses and maps physical chunks where blocks need them.
//! A request that finds no free block is served by a [plan](policy::Plan): a place among the addresses, and for every hole
//! under it a chunk, spare or new. The work is shared out:
//!
//! | who | does |
//! |---|---|
//! | `core::elastic` | keeps blocks, holes and chunks; holds and commits places |
//! | [`policy`], with [`place`] and [`tuning`] | decides: facts in, plan out |
//! | [`chunks`] | knows the backing of every chunk |
//! | [`filling`] | carries a plan out on the device, wholly or not at all |
//! | `heap::elastic` | puts the four together, under the right locks |
//!
//! A chunk that moves is mapped at its new place while the old mapping stays for work under way; the old
//! addresses are unmapped once an event recorded then has passed. So nothing here waits for the device.

pub(crate) mod blocks;
pub(crate) mod chunk_map;
pub(crate) mod chunk_table;
pub(crate) mod commit;
pub(crate) mod donors;
pub(crate) mod fill;
pub(crate) mod grow;
pub(crate) mod moves;
pub(crate) mod placement;
pub(crate) mod policy;
pub(crate) mod reserve;
pub(crate) mod segment;
pub(crate) mod state;
pub(crate) mod tuning;
pub(crate) mod unmap;

pub(crate) use chunk_table::ChunkTable;
pub(crate) use fill::Fill;
pub use segment::ElasticSegment;
pub(crate) use tuning::Tuning;

use cachette_hal::VirtualMemory;

/// No chunk is smaller, whatever the driver allows: each costs a call, and on some systems a file descriptor.
const SMALLEST_PAGE: u64 = 2 << 20;

/// What chunks, and the addresses they are mapped at, are multiples of.
pub(crate) fn page(memory: &dyn VirtualMemory) -> u64 {
    memory.granularity().recommended.max(SMALLEST_PAGE)
}
