//! Elastic segments: address ranges with physical memory only where blocks need it.
//!
//! An elastic heap reserves wide address ranges and maps physical chunks where blocks need them. A request that finds
//! no free block is served by a [plan](policy::Plan). The plan is a place in a free range, and an idle or new chunk for
//! every unmapped part of that place.
//!
//! A chunk that moves is mapped at its new address first. The old mapping stays for queued work. It is removed after an
//! event that was recorded at the move has passed, so no step waits for the device.

pub(crate) mod blocks;
pub(crate) mod chunk_map;
pub(crate) mod chunk_table;
pub(crate) mod donors;
pub(crate) mod grow;
pub(crate) mod map;
pub(crate) mod policy;
pub(crate) mod unmap;

pub(crate) use chunk_map::{SMALLEST_PAGE, page};
pub(crate) use chunk_table::ChunkTable;
pub(crate) use donors::ChunkDonors;
pub(crate) use grow::Wanted;
pub(crate) use map::Fill;
pub(crate) use policy::{MANY_HEAPS, Tuning};
