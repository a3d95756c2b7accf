//! Finding a block by its first address.

use crate::blocks::{Block, BlockId, BlockState, HeapBlocks, SegmentId};
use crate::label::Label;
use crate::size::UNIT;

impl<G> HeapBlocks<G> {
    /// Turns the block into raw memory, which is known by its address only.
    #[inline]
    pub(crate) fn make_raw(&mut self, id: BlockId, label: Label) {
        let block = &mut self.blocks[id];
        block.label = label;
        if !block.indexed {
            self.index(id);
        }
    }

    /// Adds the block to the start index of its segment. Owners store their block, so only raw blocks need it.
    #[cold]
    fn index(&mut self, id: BlockId) {
        self.blocks[id].indexed = true;
        let block = &self.blocks[id];
        if let Some(Some((_, starts))) = self.segments.slots.get_mut(block.segment.0 as usize) {
            starts.note(&self.blocks, block.offset(), id);
        }
    }

    /// The indexed block that may begin at `address` in `segment`. Every raw block is indexed.
    #[inline(always)]
    pub(crate) fn hint(&self, segment: SegmentId, address: u64) -> Option<BlockId> {
        let (record, starts) = self.segments.slots.get(segment.0 as usize)?.as_ref()?;
        let unit = u32::try_from(address.checked_sub(record.base)? / UNIT).ok()?;
        Some(starts.hint(unit))
    }

    /// Returns the block if it is allocated, raw and begins at `address`.
    #[inline(always)]
    pub(crate) fn if_raw_at(&self, id: BlockId, address: u64) -> Option<BlockId> {
        let block = self.blocks.get(id)?;
        let is_raw = block.state == BlockState::Allocated && block.label.is_raw();
        (block.address == address && is_raw).then_some(id)
    }

    /// The block in use that begins at `address` in `segment`. Only blocks that were never raw need a walk.
    pub(crate) fn find(&self, segment: SegmentId, address: u64) -> Option<BlockId> {
        let is_such = |(_, block): &(BlockId, &Block)| block.address == address && block.is_in_use();
        let hint = self.hint(segment, address)?;
        let indexed = self.blocks.get(hint).map(|block| (hint, block)).filter(is_such);
        let walk = || self.blocks_of(self.segments.get(segment)?).find(is_such);
        indexed.or_else(walk).map(|(id, _)| id)
    }
}
