//! Finding a block by its first address.

use crate::blocks::{BlockId, BlockState, HeapBlocks, SegmentId};
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
        if let Some(segment) = self.segments.get_mut(block.segment) {
            segment.starts.note(&self.blocks, block.offset(), id);
        }
    }

    /// The allocated raw block that begins at `address` in `segment`.
    #[inline(always)]
    pub(crate) fn find_raw(&self, segment: SegmentId, address: u64) -> Option<BlockId> {
        let record = self.segments.get(segment)?;
        let grain = u32::try_from(address.checked_sub(record.base)? / UNIT).ok()?;
        let id = record.starts.hint(grain).get()?;
        let block = &self.blocks[id];
        let is_raw = block.state == BlockState::Allocated && block.label.is_raw();
        (block.address == address && is_raw).then_some(id)
    }

    /// The block in use that begins at `address` in `segment`.
    pub(crate) fn find(&self, segment: SegmentId, address: u64) -> Option<BlockId> {
        let segment = self.segments.get(segment)?;
        let (id, block) = self.blocks_of(segment).find(|(_, block)| block.address == address)?;
        matches!(block.state, BlockState::Allocated | BlockState::Pending).then_some(id)
    }
}
