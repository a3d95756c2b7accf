//! The free blocks of elastic segments: their lists, and the search for a request.
//!
//! Small blocks are listed by size and large blocks by address; one setting lists all of them by address. A block that
//! replaces another one at the same position takes over its entry, which costs less than a removal and an insertion.

use crate::blocks::table::Block;
use crate::blocks::{BlockId, BlockState, HeapBlocks, ReuseGuard};
use crate::elastic::blocks::units_of;
use crate::heap_policy::HeapPolicy;
use crate::size::{SMALL_LIMIT, SegmentKind, UNIT};

/// Grains of the largest small request.
const SMALL_GRAINS: u32 = units_of(SMALL_LIMIT);

impl<G: ReuseGuard> HeapBlocks<G> {
    /// Allocates a free block that fits, and splits off the remainder.
    #[inline(never)]
    pub(crate) fn search_elastic(&mut self, policy: &HeapPolicy, units: u32) -> BlockId {
        self.coalesce();
        let id = self.find_free(units);
        if !id.is_some() {
            return id;
        }
        let block = &self.blocks[id];
        let (place, left) = (block.place(), block.units - units);
        let end = block.address + u64::from(units) * UNIT;
        let by_place = self.is_by_place(SegmentKind::of(u64::from(left) * UNIT));
        let rest = (left > 0 && !policy.no_split).then(|| self.blocks.claim());
        match rest.flatten() {
            Some(rest) if by_place => {
                self.split_off(id, rest, end);
                self.take_entry_over(place, rest);
            }
            Some(rest) => {
                self.withdraw(id);
                self.split_off(id, rest, end);
                self.return_as(rest, BlockState::Free);
            }
            None => self.withdraw(id),
        }
        let block = &mut self.blocks[id];
        block.kind = SegmentKind::of(block.bytes());
        block.state = BlockState::Allocated;
        self.last_freed = id;
        id
    }

    /// Returns the free block for a request: the small block that fits best, or the first by position. The blocks of an
    /// elastic segment are listed by their own size, and serve both kinds.
    fn find_free(&self, units: u32) -> BlockId {
        if units <= SMALL_GRAINS {
            let id = self.small.best(units);
            if id.is_some() {
                return id;
            }
        }
        let chunk_map = self.chunk_map.as_ref();
        chunk_map.map_or(BlockId::NONE, |chunk_map| chunk_map.places.first(units))
    }

    /// Removes a free or unmapped block from its list.
    pub(crate) fn withdraw(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let (state, kind, place) = (block.state, block.kind, block.place());
        match self.chunk_map.as_deref_mut() {
            Some(chunk_map) if state != BlockState::Free => {
                chunk_map.holes.remove(&place);
            }
            Some(chunk_map) if chunk_map.is_by_place(kind) => chunk_map.places.remove(place),
            _ => self.unlist(id, kind),
        }
    }

    /// Lists a free or unmapped block that is already merged. A restore also calls this for segments that are not
    /// elastic.
    pub(crate) fn return_as(&mut self, id: BlockId, state: BlockState) {
        let block = &mut self.blocks[id];
        block.state = state;
        if self.chunk_map.is_some() {
            block.kind = SegmentKind::of(block.bytes());
        }
        let (kind, place) = (block.kind, block.place());
        match self.chunk_map.as_deref_mut() {
            Some(chunk_map) if state != BlockState::Free => {
                chunk_map.holes.insert(place, id);
            }
            Some(chunk_map) if chunk_map.is_by_place(kind) => chunk_map.places.insert(&self.blocks, id),
            _ => self.list(id, kind),
        }
    }

    /// Frees a block that has memory.
    ///
    /// The block is merged with its free neighbours, and takes over the entry of a neighbour that was listed by
    /// position.
    pub(crate) fn become_free(&mut self, mut id: BlockId) {
        self.last_freed = BlockId::NONE;
        let (before, after) = (self.blocks[id].before, self.blocks[id].after);
        let mut entry = None;
        if self.blocks.get(after).is_some_and(Block::is_free) {
            entry = self.give_entry_up(after);
            self.merge(id, after);
        }
        if self.blocks.get(before).is_some_and(Block::is_free) {
            if let Some(place) = self.give_entry_up(before)
                && let Some(second) = entry.replace(place)
                && let Some(chunk_map) = &mut self.chunk_map
            {
                chunk_map.places.remove(second);
            }
            self.merge(before, id);
            id = before;
        }
        match entry {
            Some(place) => self.take_entry_over(place, id),
            None => self.return_as(id, BlockState::Free),
        }
    }

    /// Returns the position entry of a free block that is being merged, for another block to take over. A block without
    /// such an entry is removed from its list.
    fn give_entry_up(&mut self, id: BlockId) -> Option<u64> {
        let block = &self.blocks[id];
        if self.is_by_place(block.kind) {
            return Some(block.place());
        }
        self.withdraw(id);
        None
    }

    /// Lists a free block in the entry of a merged block. No other block lies between them.
    fn take_entry_over(&mut self, place: u64, id: BlockId) {
        let block = &mut self.blocks[id];
        block.state = BlockState::Free;
        block.kind = SegmentKind::of(block.bytes());
        if let Some(chunk_map) = &mut self.chunk_map {
            chunk_map.places.replace(&self.blocks, place, id);
        }
    }

    /// Returns whether free blocks of a kind are listed by position.
    fn is_by_place(&self, kind: SegmentKind) -> bool {
        self.chunk_map.as_ref().is_some_and(|chunk_map| chunk_map.is_by_place(kind))
    }

    /// Sets whether small free blocks are listed by position, as large ones are (first fit), or by size (best fit).
    pub(crate) fn pack(&mut self, packs: bool) {
        self.coalesce();
        if self.chunk_map.as_ref().is_none_or(|chunk_map| chunk_map.packs == packs) {
            return;
        }
        let free = self.listed();
        for id in &free {
            self.withdraw(*id);
        }
        if let Some(chunk_map) = &mut self.chunk_map {
            chunk_map.packs = packs;
        }
        for id in free {
            self.return_as(id, BlockState::Free);
        }
        self.last_freed = BlockId::NONE;
    }
}

impl<G> HeapBlocks<G> {
    /// Every free block that a search can find.
    pub(crate) fn listed(&self) -> Vec<BlockId> {
        let small = self.small.iter(&self.blocks);
        match &self.chunk_map {
            Some(chunk_map) => small.chain(chunk_map.places.iter()).collect(),
            None => small.chain(self.large.in_order(&self.blocks)).collect(),
        }
    }
}
