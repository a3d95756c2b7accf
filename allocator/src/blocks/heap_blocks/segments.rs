//! Adding segments to a heap's blocks, and removing them.
//!
//! Removal has two steps, since the source may refuse to free a segment. After `begin_leaving` no request can allocate
//! from the segment. Then `leave` removes it from the tables, or `stay` makes it available again.

use crate::blocks::start_index::StartIndex;
use crate::blocks::{BlockId, BlockState, HeapBlocks, ReuseGuard, Segment, SegmentId};
use crate::size::{SegmentKind, UNIT};

impl<G: ReuseGuard> HeapBlocks<G> {
    /// Adds a segment as one free block. Returns `None` if the tables are full.
    pub(crate) fn add_segment(&mut self, base: u64, bytes: u64, kind: SegmentKind, order: u64) -> Option<SegmentId> {
        let (segment, first) = self.put_segment(base, bytes, kind, order, StartIndex::even(bytes, kind))?;
        self.blocks[first].state = BlockState::Free;
        self.list(first, kind);
        self.last_found = BlockId::NONE;
        Some(segment)
    }

    /// Adds a segment to the tables, with one block that is not listed. Returns `None` if the tables are full.
    pub(crate) fn put_segment(
        &mut self,
        base: u64,
        bytes: u64,
        kind: SegmentKind,
        order: u64,
        starts: StartIndex,
    ) -> Option<(SegmentId, BlockId)> {
        let units = u32::try_from(bytes / UNIT).ok().filter(|units| *units > 0)?;
        let age = self.segments.next_age()?;
        let first = self.blocks.claim()?;
        let Some(segment) = self.segments.add(Segment { base, bytes, kind, first, age, order }, starts) else {
            self.blocks.remove(first);
            return None;
        };
        let block = &mut self.blocks[first];
        block.address = base;
        block.rank = rank_of(age);
        block.units = units;
        block.segment = segment;
        block.before = BlockId::NONE;
        block.after = BlockId::NONE;
        block.born = self.clock;
        block.kind = kind;
        Some((segment, first))
    }

    /// Begins the removal of a segment whose one block is free. Returns its memory and guards; `None` if it is in use.
    ///
    /// [`leave`](Self::leave) or [`stay`](Self::stay) must follow.
    pub(crate) fn begin_leaving(&mut self, id: SegmentId) -> Option<(&Segment, Vec<G>)> {
        self.coalesce();
        let segment = self.segments.get(id)?;
        let (first, kind) = (segment.first, segment.kind);
        let block = &self.blocks[first];
        if block.state != BlockState::Free || !block.is_whole() {
            return None;
        }
        self.unlist(first, kind);
        self.blocks[first].state = BlockState::Leaving;
        let guards = self.guards_of(first);
        Some((self.segments.get(id)?, guards))
    }

    /// Removes a segment after [`begin_leaving`](Self::begin_leaving).
    pub(crate) fn leave(&mut self, id: SegmentId) {
        if let Some(segment) = self.segments.remove(id) {
            self.take_guards(segment.first);
            self.blocks.remove(segment.first);
        }
    }

    /// Makes a segment available again whose memory could not be freed.
    pub(crate) fn stay(&mut self, id: SegmentId) {
        if let Some(segment) = self.segments.get(id) {
            let (first, kind) = (segment.first, segment.kind);
            self.blocks[first].state = BlockState::Free;
            self.blocks[first].born = self.clock;
            self.list(first, kind);
            self.last_found = BlockId::NONE;
        }
    }

    /// Returns the segments whose one block is free, oldest first.
    ///
    /// Elastic segments are never among them: an elastic segment releases chunks, and never itself.
    pub(crate) fn idle_segments(&mut self) -> Vec<IdleSegment> {
        self.coalesce();
        if self.chunk_map.is_some() {
            return Vec::new();
        }
        let mut idle: Vec<_> = self
            .segments
            .iter()
            .filter_map(|(id, segment)| {
                let block = &self.blocks[segment.first];
                (block.state == BlockState::Free && block.is_whole()).then(|| IdleSegment {
                    id,
                    order: segment.age,
                    bytes: segment.bytes,
                    kind: segment.kind,
                    age: self.clock.wrapping_sub(block.born),
                })
            })
            .collect();
        idle.sort_by_key(|segment| segment.order);
        idle
    }
}

/// Returns the rank of a segment's first block. Among blocks of equal size, the block with the lowest rank is allocated
/// first, so younger segments have lower ranks.
///
/// The reference orders blocks of equal size by address, and drivers assign addresses downwards. This rank results in
/// the same order without depending on addresses.
pub(crate) const fn rank_of(age: u32) -> u64 {
    (!age as u64) << 32
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleSegment {
    pub(crate) id: SegmentId,
    /// Position among the heap's segments, in the order of their creation.
    pub(crate) order: u32,
    pub(crate) bytes: u64,
    pub(crate) kind: SegmentKind,
    /// Requests since the segment became idle.
    pub(crate) age: u32,
}
