//! Listing the blocks of a heap and checking their invariants.

use std::collections::HashSet;

use crate::blocks::heap_blocks::rank_of;
use crate::blocks::{BlockId, BlockState, HeapBlocks, Segment, Split};
use crate::size::{SegmentKind, UNIT};

/// A segment at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentView {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) kind: SegmentKind,
    pub(crate) age: u32,
    /// Whether the segment is elastic: it serves both kinds, and some of its blocks have no memory.
    pub(crate) elastic: bool,
    pub(crate) blocks: Vec<BlockView>,
}

impl SegmentView {
    /// Returns whether its blocks serve requests of `kind`.
    pub(crate) fn serves(&self, kind: SegmentKind) -> bool {
        self.elastic || self.kind == kind
    }
}

/// A block at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockView {
    pub(crate) id: BlockId,
    /// Offset from the start of the segment, in bytes.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) requested: u64,
    pub(crate) state: BlockState,
    pub(crate) kind: SegmentKind,
}

impl<G> HeapBlocks<G> {
    /// Returns every segment with its blocks, in the order of creation.
    pub(crate) fn view(&self) -> Vec<SegmentView> {
        let mut segments: Vec<_> = self
            .segments
            .iter()
            .map(|(_, segment)| SegmentView {
                base: segment.base,
                bytes: segment.bytes,
                kind: segment.kind,
                age: segment.age,
                elastic: self.chunk_map.is_some(),
                blocks: self.chain(segment.first),
            })
            .collect();
        segments.sort_by_key(|segment| segment.age);
        segments
    }

    fn chain(&self, first: BlockId) -> Vec<BlockView> {
        std::iter::successors(first.get(), |id| self.blocks[*id].after.get())
            .map(|id| {
                let block = &self.blocks[id];
                BlockView {
                    id,
                    offset: u64::from(block.offset()) * UNIT,
                    bytes: block.bytes(),
                    requested: block.requested,
                    state: block.state,
                    kind: block.kind,
                }
            })
            .collect()
    }

    /// Returns the bytes of the largest free block of either kind.
    pub(crate) fn largest_free(&self) -> u64 {
        self.view()
            .iter()
            .flat_map(|segment| &segment.blocks)
            .filter(|block| matches!(block.state, BlockState::Free | BlockState::Recent))
            .map(|block| block.bytes)
            .max()
            .unwrap_or(0)
    }

    /// Checks every invariant. The error names the violated one.
    pub(crate) fn check(&self) -> Result<(), String> {
        let listed = self.check_lists()?;
        let mut split = [Split::default(); 2];
        let mut blocks = 0;
        for (id, segment) in self.segments.iter() {
            let (mut end, mut before, mut was_free) = (0, BlockId::NONE, false);
            for view in self.chain(segment.first) {
                let block = &self.blocks[view.id];
                let at = format!("block {:?} of segment {id:?}", view.id);
                let free = block.state == BlockState::Free;
                ensure(view.offset == end && view.bytes > 0, || format!("{at} does not tile"))?;
                ensure(block.segment == id && block.before == before, || format!("{at} is mislinked"))?;
                ensure(block.address == segment.base + view.offset, || format!("{at} has a wrong address"))?;
                ensure(block.rank == rank_of(segment.age) + u64::from(block.offset()), || {
                    format!("{at} has a wrong age")
                })?;
                ensure(!(free && was_free), || format!("{at} was not merged"))?;
                ensure(free == listed.contains(&view.id), || format!("{at} is listed wrongly"))?;
                ensure(block.state != BlockState::Vacant, || format!("{at} is vacant"))?;
                ensure((block.state == BlockState::Recent) == (self.recent == view.id), || {
                    format!("{at} is not the recent one")
                })?;
                ensure(block.guarded == self.guards.contains_key(&view.id), || format!("{at} has lost its guards"))?;
                if free && !block.is_whole() && self.chunk_map.is_none() {
                    split[segment.kind as usize].blocks += 1;
                    split[segment.kind as usize].bytes += view.bytes;
                }
                (end, before, was_free) = (end + view.bytes, view.id, free);
                blocks += 1;
            }
            ensure(end == segment.bytes, || format!("segment {id:?} is not covered"))?;
        }
        ensure(split == self.split, || format!("split counts {:?} are not {split:?}", self.split))?;
        ensure(blocks == self.blocks.len(), || "a block belongs to no segment".to_owned())?;
        self.check_ground()
    }

    /// Checks that chunks lie under exactly the blocks that have memory.
    fn check_ground(&self) -> Result<(), String> {
        let Some(chunk_map) = &self.chunk_map else { return Ok(()) };
        let view = self.view();
        let blocks = || {
            view.iter().flat_map(|segment| {
                let place = |block: &BlockView| (segment.base + block.offset, block.bytes);
                segment.blocks.iter().map(move |block| (place(block), block))
            })
        };
        for (_, block) in blocks() {
            let hole = block.state == BlockState::Unmapped;
            ensure(hole == (chunk_map.holes.get(&self.blocks[block.id].place()) == Some(&block.id)), || {
                format!("hole {:?} is listed wrongly", block.id)
            })?;
            let kind = SegmentKind::of(block.bytes);
            let unlisted = matches!(block.state, BlockState::Reserved | BlockState::PendingUnmap);
            ensure(block.kind == kind || unlisted, || format!("block {:?} is not of kind {kind:?}", block.id))?;
        }
        let holes = blocks().filter(|(_, block)| block.state == BlockState::Unmapped);
        ensure(holes.count() == chunk_map.holes.len(), || "a hole is nowhere".to_owned())?;
        // A thread may be mapping or unmapping memory under a held block, so the chunks are not comparable.
        if blocks().any(|(_, block)| block.state == BlockState::Reserved) {
            return Ok(());
        }
        let mut filled = blocks()
            .filter(|(_, block)| !matches!(block.state, BlockState::Unmapped | BlockState::PendingUnmap))
            .map(|(place, _)| place)
            .collect::<Vec<_>>();
        filled.sort_unstable();
        let mut chunks: Vec<_> = chunk_map.chunks().map(|chunk| (chunk.at, chunk.bytes)).collect();
        chunks.sort_unstable();
        let (filled, chunks) = (merged(&filled), merged(&chunks));
        ensure(filled == chunks, || format!("chunks lie at {chunks:x?} and blocks at {filled:x?}"))
    }

    /// Checks the free structures, and returns the blocks that they list.
    fn check_lists(&self) -> Result<HashSet<BlockId>, String> {
        ensure(self.small.bits_agree() && self.large.bits_agree(), || "the bits disagree with the lists".to_owned())?;
        let places = self.chunk_map.as_ref().map(|chunk_map| &chunk_map.places);
        ensure(places.is_none_or(|places| places.agrees(&self.blocks)), || {
            "the places disagree with the blocks".to_owned()
        })?;
        let small: Vec<_> = self.small.iter(&self.blocks).collect();
        let large = match places {
            Some(places) => places.iter().collect(),
            None => self.large.in_order(&self.blocks),
        };
        for (kind, ids) in [(SegmentKind::Small, &small), (SegmentKind::Large, &large)] {
            for id in ids {
                let segment = self.segments.get(self.blocks[*id].segment);
                let by_place = kind == SegmentKind::Large;
                let fits = |segment: &Segment| match &self.chunk_map {
                    Some(chunk_map) => chunk_map.is_by_place(self.blocks[*id].kind) == by_place,
                    None => segment.kind == kind,
                };
                ensure(segment.is_some_and(fits), || format!("block {id:?} is listed among the {kind:?}"))?;
            }
        }
        for pair in large.windows(2).filter(|_| places.is_none()) {
            let (a, b) = (&self.blocks[pair[0]], &self.blocks[pair[1]]);
            ensure((a.units, a.rank) < (b.units, b.rank), || format!("large blocks {pair:?} are out of order"))?;
        }
        let count = small.len() + large.len();
        let listed: HashSet<_> = small.into_iter().chain(large).collect();
        ensure(listed.len() == count, || "a block is listed twice".to_owned())?;
        Ok(listed)
    }
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

fn ensure(holds: bool, text: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(text()) }
}
