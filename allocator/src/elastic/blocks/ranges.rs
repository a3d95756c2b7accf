//! Free ranges: adjacent free and unmapped blocks, in which a request can be placed.

use crate::blocks::table::Block;
use crate::blocks::{BlockId, BlockState, FreeRange, HeapBlocks, ReuseGuard};

impl<G: ReuseGuard> HeapBlocks<G> {
    /// Every free range, by position.
    pub(crate) fn runs(&mut self) -> Vec<FreeRange> {
        self.coalesce();
        let Some(chunk_map) = &self.chunk_map else { return Vec::new() };
        let mut runs: Vec<FreeRange> = Vec::new();
        for hole in chunk_map.holes.values() {
            let at = self.blocks[*hole].address;
            if runs.last().is_none_or(|last| !(last.start..last.end).contains(&at)) {
                runs.push(self.run_around(*hole));
            }
        }
        runs
    }

    fn run_around(&self, anchor: BlockId) -> FreeRange {
        let mut first = anchor;
        while let Some(before) = self.blocks[first].before.get()
            && self.blocks[before].can_be_placed_on()
        {
            first = before;
        }
        let start = self.blocks[first].address;
        let mut run = FreeRange { anchor, start, end: start, free: Vec::new() };
        let mut at = first.get();
        while let Some(id) = at
            && self.blocks[id].can_be_placed_on()
        {
            let block = &self.blocks[id];
            if block.state == BlockState::Free {
                run.free.push((run.end, block.end()));
            }
            run.end = block.end();
            at = block.after.get();
        }
        run
    }
}

impl Block {
    /// Returns whether a request can be placed here, once the addresses are mapped.
    const fn can_be_placed_on(&self) -> bool {
        matches!(self.state, BlockState::Free | BlockState::Unmapped)
    }
}
