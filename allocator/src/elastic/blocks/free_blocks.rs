//! The free blocks of elastic segments: their list, and the search for a request.
//!
//! Blocks are listed by address. A block that replaces another one at the same position takes over its slot, which costs
//! less than a removal and an insertion.

use crate::blocks::address_list::Slot;
use crate::blocks::table::Block;
use crate::blocks::{BlockId, BlockState, HeapBlocks, ReuseGuard};
use crate::size::kind_of;

impl<G: ReuseGuard> HeapBlocks<G> {
    /// Allocates the first free block that fits, and splits off the remainder.
    #[inline(never)]
    pub(crate) fn search_elastic(&mut self, units: u32) -> BlockId {
        if let Some(last_freed) = self.take_last_freed() {
            self.become_free(last_freed);
        }
        let Some(chunk_map) = &mut self.chunk_map else { return BlockId::NONE };
        let Some(id) = chunk_map.places.first(&self.blocks, units) else { return BlockId::NONE };
        let block = &self.blocks[id];
        let slot = block.slot;
        if block.units > units
            && let Some(rest) = self.split_rest(id, units)
        {
            self.take_slot_over(slot, rest);
        } else {
            self.withdraw(id);
        }
        let block = &mut self.blocks[id];
        block.kind = kind_of(block.bytes());
        block.state = BlockState::Allocated;
        self.last_found = id;
        id
    }

    /// Removes a free or unmapped block from its list.
    pub(crate) fn withdraw(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let (state, kind, place) = (block.state, block.kind, block.place());
        match self.chunk_map.as_deref_mut() {
            Some(chunk_map) if state != BlockState::Free => {
                chunk_map.holes.remove(&place);
            }
            Some(chunk_map) => chunk_map.places.remove(&mut self.blocks, id),
            None => self.unlist(id, kind),
        }
    }

    /// Lists a free or unmapped block that is already merged. A restore calls this for all kinds of segments.
    pub(crate) fn return_as(&mut self, id: BlockId, state: BlockState) {
        let block = &mut self.blocks[id];
        block.state = state;
        if self.chunk_map.is_some() {
            block.kind = kind_of(block.bytes());
        }
        let (kind, place) = (block.kind, block.place());
        match self.chunk_map.as_deref_mut() {
            Some(chunk_map) if state != BlockState::Free => {
                chunk_map.holes.insert(place, id);
            }
            Some(chunk_map) => chunk_map.places.insert(&mut self.blocks, id),
            None => self.list(id, kind),
        }
    }

    /// Frees a block that has memory.
    ///
    /// The block is merged with its free neighbours, and takes over the slot of one of them.
    pub(crate) fn become_free(&mut self, mut id: BlockId) {
        self.last_found = BlockId::NONE;
        let (before, after) = (self.blocks[id].before, self.blocks[id].after);
        let is_free = |neighbour: Option<&Block>| neighbour.is_some_and(Block::is_free);
        let (merges_before, merges_after) = (is_free(self.blocks.get(before)), is_free(self.blocks.get(after)));
        let mut slot = None;
        if merges_after {
            if merges_before {
                self.withdraw(after);
            } else {
                slot = Some(self.blocks[after].slot);
            }
            self.merge(id, after);
        }
        if merges_before {
            slot = Some(self.blocks[before].slot);
            self.merge(before, id);
            id = before;
        }
        match slot {
            Some(slot) => self.take_slot_over(slot, id),
            None => self.return_as(id, BlockState::Free),
        }
    }

    /// Lists a free block in the slot of a block that it was merged with or split from. No other block lies between them.
    #[inline(always)]
    fn take_slot_over(&mut self, slot: Slot, id: BlockId) {
        let block = &mut self.blocks[id];
        block.state = BlockState::Free;
        block.kind = kind_of(block.bytes());
        if let Some(chunk_map) = &mut self.chunk_map {
            chunk_map.places.replace(&mut self.blocks, slot, id);
        }
    }
}
