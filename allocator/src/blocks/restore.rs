//! Allocating blocks at given addresses.

use crate::blocks::{BlockId, BlockState, HeapBlocks, ReuseGuard, SegmentId, Split};
use crate::size::SegmentKind;

impl<G: ReuseGuard> HeapBlocks<G> {
    /// Returns whether the addresses lie in one segment and contain only free and allocated blocks. Then exactly these
    /// addresses can be allocated after the callers free theirs. A block that other streams use, according to `is_used`,
    /// is not free at once.
    pub(crate) fn could_hold(&mut self, at: u64, bytes: u64, is_used: impl Fn(BlockId) -> bool) -> bool {
        self.coalesce();
        let Some(first) = self.first_around(at) else { return false };
        let mut next = Some(first);
        while let Some(id) = next {
            let block = &self.blocks[id];
            let end = block.address + block.bytes();
            let free = matches!(block.state, BlockState::Free | BlockState::Allocated);
            if end > at && (!free || block.guarded || is_used(id)) {
                return false;
            }
            if end >= at + bytes {
                return true;
            }
            next = block.after.get();
        }
        false
    }

    /// Allocates exactly these addresses. Returns `None` if they are not free, or if the tables are full.
    pub(crate) fn allocate_at(&mut self, at: u64, bytes: u64) -> Option<BlockId> {
        self.coalesce();
        let first = self.first_around(at)?;
        let chain = std::iter::successors(Some(first), |id| self.blocks[*id].after.get());
        let around = chain.into_iter().find(|id| {
            let block = &self.blocks[*id];
            block.address <= at && at + bytes <= block.address + block.bytes()
        })?;
        if self.blocks[around].state != BlockState::Free {
            return None;
        }
        let held = self.hold(around, at, at + bytes)?;
        let [held] = held[..] else {
            self.put_back(held);
            return None;
        };
        let elastic = self.chunk_map.is_some();
        let block = &mut self.blocks[held.block];
        block.state = BlockState::Allocated;
        if elastic {
            block.kind = SegmentKind::of(bytes);
        }
        self.last_freed = BlockId::NONE;
        self.recount();
        Some(held.block)
    }

    /// The first block of the segment that contains an address.
    fn first_around(&self, at: u64) -> Option<BlockId> {
        let around = |(_, segment): &(SegmentId, &crate::blocks::Segment)| {
            (segment.base..segment.base + segment.bytes).contains(&at)
        };
        let (_, segment) = self.segments.iter().find(around)?;
        segment.first.get()
    }

    /// Recounts the free blocks that are parts of their segment.
    fn recount(&mut self) {
        if self.chunk_map.is_some() {
            return;
        }
        let mut split = [Split::default(); 2];
        for segment in self.view() {
            for block in &segment.blocks {
                if block.state == BlockState::Free && block.bytes < segment.bytes {
                    split[segment.kind as usize].blocks += 1;
                    split[segment.kind as usize].bytes += block.bytes;
                }
            }
        }
        self.split = split;
    }
}
