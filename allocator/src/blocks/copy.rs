//! A copy of a heap's blocks, for inspection after the lock is released.

use crate::blocks::table::chain;
use crate::blocks::{Block, BlockId, Chunk, HeapBlocks, Segment};
use crate::size::SegmentKind;

/// The tables of a heap's blocks at one moment.
#[derive(Debug, Default)]
pub(crate) struct HeapBlocksCopy {
    pub(crate) segments: Vec<Segment>,
    pub(crate) blocks: Vec<Block>,
    /// In order of address; empty if the segments are not elastic.
    chunks: Vec<Chunk>,
    pub(crate) elastic: bool,
}

impl HeapBlocksCopy {
    /// The blocks of a segment, by address.
    pub(crate) fn blocks_of(&self, segment: &Segment) -> impl Iterator<Item = (BlockId, &Block)> {
        chain(&self.blocks, segment.first)
    }

    /// Returns the kind of a range. A range of an elastic segment is small if all of its chunks are.
    pub(crate) fn kind_of(&self, segment: &Segment, start: u64, end: u64) -> SegmentKind {
        let first = self.chunks.partition_point(|chunk| chunk.end() <= start);
        let mut under = self.chunks[first..].iter().take_while(|chunk| chunk.at < end);
        let small = self.elastic && under.all(|chunk| chunk.kind == SegmentKind::Small);
        if small { SegmentKind::Small } else { segment.kind }
    }
}

impl<G> HeapBlocks<G> {
    /// The blocks of a segment, by address.
    pub(crate) fn blocks_of(&self, segment: &Segment) -> impl Iterator<Item = (BlockId, &Block)> {
        chain(&self.blocks.slots, segment.first)
    }

    /// Every segment, in the order of creation.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Segment> {
        let mut segments: Vec<_> = self.segments.iter().map(|(_, segment)| segment).collect();
        segments.sort_unstable_by_key(|segment| segment.age);
        segments.into_iter()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.segments().flat_map(|segment| self.blocks_of(segment))
    }

    /// Copies the tables without following their links, so that the lock is held for a short time.
    pub(crate) fn copy_into(&self, copy: &mut HeapBlocksCopy) {
        copy.elastic = self.chunk_map.is_some();
        copy.blocks.extend_from_slice(&self.blocks.slots);
        copy.chunks = self.chunks();
        copy.segments.extend(self.segments.iter().map(|(_, segment)| *segment));
    }
}
