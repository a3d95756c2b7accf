//! Checking the invariants of a heap's blocks.

use std::collections::HashSet;

use crate::blocks::heap_blocks::rank_of;
use crate::blocks::{BlockId, BlockState, HeapBlocks, Segment};
use crate::size::{SegmentKind, UNIT, kind_of};

/// Returns an error with a text unless a condition holds.
macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err(format!($($text)+));
        }
    };
}

impl<G> HeapBlocks<G> {
    /// Checks every invariant. The error names the violated one.
    pub(crate) fn check(&self) -> Result<(), String> {
        let listed = self.check_lists()?;
        let mut blocks = 0;
        for (id, segment) in self.segments.iter() {
            let (mut end, mut before, mut was_free) = (0, BlockId::NONE, false);
            for (own, block) in self.blocks_of(segment) {
                let at = format!("block {own:?} of segment {id:?}");
                let free = block.state == BlockState::Free;
                let offset = u64::from(block.offset()) * UNIT;
                ensure!(offset == end && block.bytes() > 0, "{at} does not tile");
                ensure!(block.segment == id && block.before == before, "{at} is mislinked");
                ensure!(block.address == segment.base + offset, "{at} has a wrong address");
                ensure!(block.rank == rank_of(segment.age) + u64::from(block.offset()), "{at} has a wrong age");
                ensure!(!(free && was_free), "{at} was not merged");
                ensure!(free == listed.contains(&own), "{at} is listed wrongly");
                ensure!(block.state != BlockState::Vacant, "{at} is vacant");
                let is_last_freed = block.state == BlockState::LastFreed;
                ensure!(is_last_freed == (self.last_freed == own), "{at} is not the last-freed one");
                ensure!(block.guarded == self.guards.contains_key(&own), "{at} has lost its guards");
                (end, before, was_free) = (end + block.bytes(), own, free);
                blocks += 1;
            }
            ensure!(end == segment.bytes, "segment {id:?} is not covered");
        }
        let split = self.counted_split();
        ensure!(split == self.split, "split counts {:?} are not {split:?}", self.split);
        ensure!(blocks == self.blocks.len(), "a block belongs to no segment");
        self.check_ground()
    }

    /// Checks that chunks lie under exactly the blocks that have memory.
    fn check_ground(&self) -> Result<(), String> {
        let Some(chunk_map) = &self.chunk_map else { return Ok(()) };
        for (id, block) in self.iter() {
            let hole = block.state == BlockState::Unmapped;
            ensure!(hole == (chunk_map.holes.get(&block.place()) == Some(&id)), "hole {id:?} is listed wrongly");
            let kind = kind_of(block.bytes());
            let unlisted = matches!(block.state, BlockState::Reserved | BlockState::PendingUnmap);
            ensure!(block.kind == kind || unlisted, "block {id:?} is not of kind {kind:?}");
        }
        let holes = self.iter().filter(|(_, block)| block.state == BlockState::Unmapped);
        ensure!(holes.count() == chunk_map.holes.len(), "a hole is nowhere");
        // A thread may be mapping or unmapping memory under a held block, so the chunks are not comparable.
        if self.iter().any(|(_, block)| block.state == BlockState::Reserved) {
            return Ok(());
        }
        let mut filled: Vec<_> = self
            .iter()
            .filter(|(_, block)| !matches!(block.state, BlockState::Unmapped | BlockState::PendingUnmap))
            .map(|(_, block)| (block.address, block.bytes()))
            .collect();
        filled.sort_unstable();
        let mut chunks: Vec<_> = chunk_map.chunks.values().map(|chunk| (chunk.at, chunk.bytes)).collect();
        chunks.sort_unstable();
        let (filled, chunks) = (merged(&filled), merged(&chunks));
        ensure!(filled == chunks, "chunks lie at {chunks:x?} and blocks at {filled:x?}");
        Ok(())
    }

    /// Checks the free structures, and returns the blocks that they list.
    fn check_lists(&self) -> Result<HashSet<BlockId>, String> {
        ensure!(self.small.bits_agree() && self.large.bits_agree(), "the bits disagree with the lists");
        let places = self.chunk_map.as_ref().map(|chunk_map| &chunk_map.places);
        ensure!(places.is_none_or(|places| places.agrees(&self.blocks)), "the places disagree with the blocks");
        let small: Vec<_> = self.small.iter(&self.blocks).collect();
        let large = match places {
            Some(places) => places.iter().collect(),
            None => self.large.in_order(&self.blocks),
        };
        for (kind, ids) in [(SegmentKind::Small, &small), (SegmentKind::Large, &large)] {
            for id in ids {
                let segment = self.segments.get(self.blocks[*id].segment);
                let fits = |segment: &Segment| match places {
                    Some(_) => kind == SegmentKind::Large,
                    None => segment.kind == kind,
                };
                ensure!(segment.is_some_and(fits), "block {id:?} is listed among the {kind:?}");
            }
        }
        for pair in large.windows(2).filter(|_| places.is_none()) {
            let (a, b) = (&self.blocks[pair[0]], &self.blocks[pair[1]]);
            ensure!((a.units, a.rank) < (b.units, b.rank), "large blocks {pair:?} are out of order");
        }
        let count = small.len() + large.len();
        let listed: HashSet<_> = small.into_iter().chain(large).collect();
        ensure!(listed.len() == count, "a block is listed twice");
        Ok(listed)
    }
}

/// Returns whether two levels of bits match the lists: one for each list that is not empty, and one for each word.
pub(super) fn bits_agree(summary: u64, words: &[u64], heads: &[BlockId]) -> bool {
    let bits = |row: &[BlockId]| row.iter().rev().fold(0, |bits, head| bits << 1 | u64::from(head.is_some()));
    let summarized = words.iter().rev().fold(0, |bits, word| bits << 1 | u64::from(*word != 0));
    summarized == summary && heads.chunks(64).map(bits).eq(words.iter().copied())
}

/// Sorted ranges, with adjacent ones merged.
fn merged(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (at, bytes) in ranges {
        match merged.last_mut() {
            Some((start, length)) if *start + *length == *at => *length += bytes,
            _ => merged.push((*at, *bytes)),
        }
    }
    merged
}
