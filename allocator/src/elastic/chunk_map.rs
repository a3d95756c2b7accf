//! The chunks and the unmapped blocks of an elastic heap.

use std::collections::{BTreeMap, HashSet};

use cachette_hal::VirtualMemory;

use crate::blocks::address_list::AddressList;
use crate::blocks::{BlockId, SegmentId};
use crate::size::SegmentKind;

/// The smallest chunk, whatever the driver allows: each chunk costs a call, and on some systems a file descriptor.
pub(crate) const SMALLEST_PAGE: u64 = 2 << 20;

/// The granularity of chunks and of the addresses that they are mapped at.
pub(crate) fn page(memory: &dyn VirtualMemory) -> u64 {
    memory.granularity().recommended.max(SMALLEST_PAGE)
}

/// The id of a chunk: physical memory that is mapped, moved and released as a whole. The chunk table assigns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ChunkId(pub(crate) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) id: ChunkId,
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// The kind of request that the chunk was mapped for.
    pub(crate) kind: SegmentKind,
}

impl Chunk {
    pub(crate) const fn end(&self) -> u64 {
        self.at + self.bytes
    }
}

/// Adjacent free and unmapped blocks, at least one of them unmapped. A request fits there after these are filled.
///
/// Free ranges, like all candidates, are ordered by [`Block::place`](crate::blocks::Block::place). The addresses that
/// the driver chose for segments have no influence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FreeRange {
    /// One of its blocks.
    pub(crate) anchor: BlockId,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Its free blocks in order, each as its first address and its end. The rest is unmapped.
    pub(crate) free: Vec<(u64, u64)>,
}

#[derive(Default)]
pub(crate) struct ChunkMap {
    /// By the address of the mapping.
    pub(crate) chunks: BTreeMap<u64, Chunk>,
    /// The unmapped blocks, by position.
    pub(crate) holes: BTreeMap<u64, BlockId>,
    /// The free blocks, by position. The first that fits is allocated.
    pub(crate) places: AddressList,
    /// The segments that get no further memory, since the driver no longer grants access to new mappings there.
    pub(crate) closed: HashSet<SegmentId>,
}
