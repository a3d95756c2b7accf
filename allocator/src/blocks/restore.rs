//! Allocating blocks at given addresses.

use crate::blocks::table::chain;
use crate::blocks::{Block, BlockId, BlockState, HeapBlocks, ReuseGuard, Split};
use crate::size::SegmentKind;

impl<G: ReuseGuard> HeapBlocks<G> {
    /// Returns whether the addresses lie in one segment and contain only free and allocated blocks. Then exactly these
    /// addresses can be allocated after the callers free theirs. A block that other streams use, according to `is_used`,
    /// is not free at once.
    pub(crate) fn could_hold(&mut self, at: u64, bytes: u64, is_used: impl Fn(BlockId) -> bool) -> bool {
        self.coalesce();
        let Some((first, _)) = self.around(at) else { return false };
        for (id, block) in chain(self.blocks.all(), first) {
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
    pub(crate) fn allocate_at(&mut self, at: u64, bytes: u64) -> Option<BlockId> {
        self.coalesce();
        let (around, block) = self.around(at)?;
        if block.state != BlockState::Free || at + bytes > block.address + block.bytes() {
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

    /// The block that contains an address.
    pub(crate) fn around(&self, at: u64) -> Option<(BlockId, &Block)> {
        let segment = self.segments().find(|segment| (segment.base..segment.base + segment.bytes).contains(&at))?;
        self.blocks_of(segment).find(|(_, block)| at < block.address + block.bytes())
    }

    /// Recounts the free blocks that are parts of their segment.
    fn recount(&mut self) {
        if self.chunk_map.is_some() {
            return;
        }
        let mut split = [Split::default(); 2];
        for segment in self.segments() {
            let part = |block: &Block| block.state == BlockState::Free && block.bytes() < segment.bytes;
            for (_, block) in self.blocks_of(segment).filter(|(_, block)| part(block)) {
                split[segment.kind as usize].blocks += 1;
                split[segment.kind as usize].bytes += block.bytes();
            }
        }
        self.split = split;
    }
}
