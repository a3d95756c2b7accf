//! Allocating blocks at given addresses.

use crate::blocks::table::chain;
use crate::blocks::{Block, BlockId, BlockState, HeapBlocks, ReuseGuard, SegmentId, Split};
use crate::size::kind_of;

/// A position in the blocks of a heap. Lookups in ascending order of address together cost one walk.
pub(crate) struct Walk {
    /// The segments by address: base, end and id. Those before `segment` are passed.
    segments: Vec<(u64, u64, SegmentId)>,
    segment: usize,
    /// A block of that segment at or before the next address; `NONE` for its first block.
    block: BlockId,
}

impl<G: ReuseGuard> HeapBlocks<G> {
    /// Begins lookups in ascending order of address.
    pub(crate) fn walk(&mut self) -> Walk {
        self.coalesce();
        let ends = self.segments.iter().map(|(id, segment)| (segment.base, segment.base + segment.bytes, id));
        let mut segments: Vec<_> = ends.collect();
        segments.sort_unstable();
        Walk { segments, segment: 0, block: BlockId::NONE }
    }

    /// Returns whether the addresses lie in one segment and contain only free and allocated blocks. Then exactly these
    /// addresses can be allocated after the callers free theirs. A block that other streams use, according to `is_used`,
    /// is not free at once.
    pub(crate) fn could_hold(&self, walk: &mut Walk, at: u64, bytes: u64, is_used: impl Fn(BlockId) -> bool) -> bool {
        let Some((first, _)) = self.walk_to(walk, at) else { return false };
        for (id, block) in chain(&self.blocks.slots, first) {
            let free = matches!(block.state, BlockState::Free | BlockState::Allocated);
            if !free || block.guarded || is_used(id) {
                return false;
            }
            if block.address + block.bytes() >= at + bytes {
                return true;
            }
        }
        false
    }

    /// Allocates exactly these addresses. Returns `None` if they are not free, or if the tables are full.
    /// The caller then sets `split` to [`counted_split`](Self::counted_split).
    pub(crate) fn allocate_at(&mut self, walk: &mut Walk, at: u64, bytes: u64) -> Option<BlockId> {
        let (around, block) = self.walk_to(walk, at)?;
        if block.state != BlockState::Free || at + bytes > block.address + block.bytes() {
            return None;
        }
        // The block may be split, and merged again.
        walk.block = BlockId::NONE;
        let held = self.hold(around, at, at + bytes)?;
        let [held] = held[..] else {
            self.put_back(held);
            return None;
        };
        walk.block = held.block;
        // The free block before it may have begun in the same stretch of the start index, which now has the new block.
        if let Some(before) = self.blocks[held.block].before.get().filter(|before| self.blocks[*before].is_free()) {
            self.blocks[before].indexed = false;
        }
        let elastic = self.chunk_map.is_some();
        let block = &mut self.blocks[held.block];
        block.state = BlockState::Allocated;
        if elastic {
            block.kind = kind_of(bytes);
        }
        self.last_found = BlockId::NONE;
        Some(held.block)
    }

    /// Returns whether a request of `bytes` may get a part of the block around an address. Direct segments have blocks of
    /// one kind, on which their start index relies.
    pub(crate) fn is_of_kind(&self, at: u64, bytes: u64) -> bool {
        self.chunk_map.is_some() || self.around(at).is_some_and(|(_, block)| block.kind == kind_of(bytes))
    }

    /// The block that contains an address, which is not below that of an earlier call.
    fn walk_to(&self, walk: &mut Walk, at: u64) -> Option<(BlockId, &Block)> {
        while walk.segments.get(walk.segment).is_some_and(|(_, end, _)| *end <= at) {
            walk.segment += 1;
            walk.block = BlockId::NONE;
        }
        let (base, _, id) = *walk.segments.get(walk.segment)?;
        if at < base {
            return None;
        }
        let first = walk.block.get().or_else(|| self.segments.get(id)?.first.get())?;
        let found = chain(&self.blocks.slots, first).find(|(_, block)| at < block.address + block.bytes())?;
        walk.block = found.0;
        Some(found)
    }

    pub(crate) fn around(&self, at: u64) -> Option<(BlockId, &Block)> {
        let mut segments = self.segments.iter().map(|(_, segment)| segment);
        let segment = segments.find(|segment| (segment.base..segment.base + segment.bytes).contains(&at))?;
        self.blocks_of(segment).find(|(_, block)| at < block.address + block.bytes())
    }
}

impl<G> HeapBlocks<G> {
    /// The listed free blocks that are parts of their segment, by a walk. Those of elastic segments do not count.
    pub(crate) fn counted_split(&self) -> [Split; 2] {
        let mut split = [Split::default(); 2];
        for (_, block) in self.iter() {
            if self.chunk_map.is_none() && block.is_free() && !block.is_whole() {
                split[block.kind as usize].blocks += 1;
                split[block.kind as usize].bytes += block.bytes();
            }
        }
        split
    }
}
