//! What lies under the blocks of an elastic shelf: chunks of memory, and holes where there is none.

use std::collections::BTreeMap;

use crate::blocks::BlockId;
use crate::blocks::address_list::AddressList;
use crate::size::SegmentKind;

/// A chunk: physical memory that is mapped, moved and given back whole. The number is its owner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ChunkId(pub(crate) u32);

/// A chunk and where it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) id: ChunkId,
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// What the request was that it was mapped for.
    pub(crate) kind: SegmentKind,
}

impl Chunk {
    /// The address after its last byte.
    pub(crate) const fn end(&self) -> u64 {
        self.at + self.bytes
    }
}

/// A chunk that lies wholly inside a free block, so that it may be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdleChunk {
    pub(crate) chunk: Chunk,
    /// The free block.
    pub(crate) block: BlockId,
    /// Size of the free block in bytes.
    pub(crate) within: u64,
}

/// Adjacent blocks that are free or holes, at least one of them a hole: a place where a request can go once
/// the holes under it are filled.
///
/// Runs, like everything that is chosen among, are ordered by [`Block::place`](crate::blocks::Block::place): where the
/// driver puts segments must not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FreeRange {
    /// One of its blocks.
    pub(crate) anchor: BlockId,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Its free blocks, as first address and the one after the last, in order; the rest are holes.
    pub(crate) free: Vec<(u64, u64)>,
}

/// The chunks and holes of one shelf.
#[derive(Debug, Default)]
pub(crate) struct ChunkMap {
    /// By the address where it is mapped.
    chunks: BTreeMap<u64, Chunk>,
    /// The blocks that are holes, by place.
    pub(crate) holes: BTreeMap<u64, BlockId>,
    /// The large free blocks, by place: the first that fits serves.
    pub(crate) places: AddressList,
    /// Whether the small ones are there as well, and not listed by size.
    pub(crate) packs: bool,
}

impl ChunkMap {
    /// Whether free blocks of a kind are listed by place.
    pub(crate) fn is_by_place(&self, kind: SegmentKind) -> bool {
        self.packs || kind == SegmentKind::Large
    }

    pub(crate) fn add(&mut self, chunk: Chunk) {
        self.chunks.insert(chunk.at, chunk);
    }

    pub(crate) fn remove(&mut self, at: u64) {
        self.chunks.remove(&at);
    }

    /// The chunks that lie wholly in a range, by address.
    pub(crate) fn inside(&self, start: u64, end: u64) -> impl Iterator<Item = Chunk> + '_ {
        self.chunks.range(start..end).map(|(_, chunk)| *chunk).filter(move |chunk| chunk.end() <= end)
    }

    /// The chunk that begins at an address.
    pub(crate) fn at(&self, at: u64) -> Option<Chunk> {
        self.chunks.get(&at).copied()
    }

    /// Every chunk, by address.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Chunk> + '_ {
        self.inside(0, u64::MAX)
    }
}
