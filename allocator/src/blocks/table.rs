//! The table of blocks, linked by index.

use crate::blocks::SegmentId;
use crate::size::{SegmentKind, UNIT};

/// Index of a block in its heap's table; a freed index is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockId(u32);

impl BlockId {
    /// No block.
    pub(crate) const NONE: Self = Self(u32::MAX);

    /// The block at this position of the table.
    #[inline]
    pub(crate) const fn new(index: u32) -> Self {
        Self(index)
    }

    /// Whether this names a block.
    #[inline]
    pub(crate) const fn is_some(self) -> bool {
        self.0 != u32::MAX
    }

    /// The block, if this names one.
    #[inline]
    pub(crate) const fn get(self) -> Option<Self> {
        if self.is_some() { Some(self) } else { None }
    }

    /// Position in the table.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// A number that orders nothing and repeats nowhere near: the shape of the trees comes from it.
    #[inline]
    pub(crate) const fn scatter(self) -> u32 {
        self.0.wrapping_add(1).wrapping_mul(0x9E37_79B1)
    }
}

/// What a block is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// The index is not in use.
    Vacant,
    /// Free and found by a search.
    Free,
    /// Free, but neither merged nor listed: the block freed last.
    Recent,
    /// Held by a caller.
    Allocated,
    /// Freed by its caller, still used by another stream.
    Pending,
    /// All of a segment that is being given back to the device.
    Leaving,
    /// Addresses without memory; only in elastic segments, as are the rest.
    Hole,
    /// Being worked on: about to get memory, or to lose it.
    Held,
    /// Addresses whose chunk serves elsewhere; work under way may still use them.
    Stale,
}

/// A contiguous part of one segment.
///
/// The blocks of a segment tile it: each begins where the one before ends.
#[derive(Clone, Copy, Debug)]
// One cache line each: a block in two would cost twice to touch.
#[repr(align(64))]
pub(crate) struct Block {
    /// Address of the first byte: that of the segment, and the offset.
    pub(crate) address: u64,
    /// Youth of the segment in the upper half, offset in grains in the lower: the order among equals in size.
    pub(crate) rank: u64,
    /// What the caller asked for; meaningful while allocated or pending.
    pub(crate) requested: u64,
    /// Size in grains; never zero.
    pub(crate) units: u32,
    pub(crate) segment: SegmentId,
    /// The block that ends where this one begins.
    pub(crate) before: BlockId,
    /// The block that begins where this one ends.
    pub(crate) after: BlockId,
    /// A link of the free structure: the previous of a list, or the left child of a tree.
    pub(crate) left: BlockId,
    /// A link of the free structure: the next of a list, or the right child of a tree.
    pub(crate) right: BlockId,
    /// The clock when the whole segment became free; its age is counted from there.
    pub(crate) born: u32,
    pub(crate) state: BlockState,
    /// The kind of the segment; in an elastic one the kind that requests of this size are of.
    pub(crate) kind: SegmentKind,
    /// Whether the block was given out by its address alone, and not to an owner; only while allocated.
    pub(crate) raw: bool,
    /// Whether the segment knows where the block begins.
    pub(crate) indexed: bool,
    /// Whether other streams were recorded as users; only while allocated or pending.
    pub(crate) used: bool,
    /// Whether guards stand before the block's next use; while it is free, and until its taker has them.
    pub(crate) guarded: bool,
}

impl Block {
    /// Whether a request may take it.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.state == BlockState::Free
    }

    /// Offset from the start of the segment, in grains.
    #[inline]
    pub(crate) const fn offset(&self) -> u32 {
        (self.rank & 0xFFFF_FFFF) as u32
    }

    /// Place among all blocks of the heap: the age of the segment, and the offset in it.
    #[inline]
    pub(crate) const fn place(&self) -> u64 {
        self.rank ^ (0xFFFF_FFFF << 32)
    }

    /// Size in bytes.
    #[inline]
    pub(crate) const fn bytes(&self) -> u64 {
        self.units as u64 * UNIT
    }

    /// Whether the block is all of its segment.
    #[inline]
    pub(crate) const fn is_whole(&self) -> bool {
        !self.before.is_some() && !self.after.is_some()
    }
}

const _: () = assert!(size_of::<Block>() == 64);

/// The table of blocks.
#[derive(Debug)]
pub(crate) struct BlockTable {
    blocks: Vec<Block>,
    /// The first of the vacant indices, each of which names the next in `right`.
    vacant: BlockId,
}

impl Default for BlockTable {
    fn default() -> Self {
        Self { blocks: Vec::new(), vacant: BlockId::NONE }
    }
}

impl BlockTable {
    /// A block to be filled in by its taker, but for its flags, which are not set; `None` when four billion are
    /// there already.
    #[inline]
    pub(crate) fn claim(&mut self) -> Option<BlockId> {
        let id = self.vacant;
        if !id.is_some() {
            return self.extend();
        }
        let slot = &mut self.blocks[id.index()];
        self.vacant = slot.right;
        Some(id)
    }

    #[cold]
    fn extend(&mut self) -> Option<BlockId> {
        let index = u32::try_from(self.blocks.len()).ok()?;
        let id = BlockId(index).get()?;
        self.blocks.push(Block {
            address: 0,
            rank: 0,
            requested: 0,
            units: 0,
            segment: SegmentId(0),
            before: BlockId::NONE,
            after: BlockId::NONE,
            left: BlockId::NONE,
            right: BlockId::NONE,
            born: 0,
            state: BlockState::Vacant,
            kind: SegmentKind::Small,
            raw: false,
            indexed: false,
            used: false,
            guarded: false,
        });
        Some(id)
    }

    /// Takes a block out of the table that nobody uses and nothing guards.
    #[inline]
    pub(crate) fn remove(&mut self, id: BlockId) {
        let vacant = self.vacant;
        let slot = &mut self[id];
        slot.state = BlockState::Vacant;
        slot.right = vacant;
        slot.indexed = false;
        self.vacant = id;
    }

    /// Every slot by its index, vacant ones among them.
    pub(crate) fn all(&self) -> &[Block] {
        &self.blocks
    }

    /// Every block by its index: to a chain of changes the table is then one address and one length.
    #[inline]
    pub(crate) fn slots(&mut self) -> &mut [Block] {
        &mut self.blocks
    }

    /// The block, if there is one: [`BlockId::NONE`] lies beyond every table.
    #[inline]
    pub(crate) fn get(&self, id: BlockId) -> Option<&Block> {
        self.blocks.get(id.index())
    }

    /// The block to be changed, if there is one.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: BlockId) -> Option<&mut Block> {
        self.blocks.get_mut(id.index())
    }

    /// Makes `right`, the block after `left`, a part of it, and takes it out of the table.
    #[inline(always)]
    pub(crate) fn merge(&mut self, left: BlockId, right: BlockId) {
        let blocks = self.blocks.as_mut_slice();
        let gone = &mut blocks[right.index()];
        let (units, after) = (gone.units, gone.after);
        gone.state = BlockState::Vacant;
        gone.right = std::mem::replace(&mut self.vacant, right);
        gone.indexed = false;
        let joined = &mut blocks[left.index()];
        joined.units += units;
        joined.after = after;
        if let Some(next) = blocks.get_mut(after.index()) {
            next.before = left;
        }
    }

    /// How many blocks there are; counted, since only the walk asks.
    pub(crate) fn len(&self) -> usize {
        let vacant = std::iter::successors(self.vacant.get(), |id| self[*id].right.get());
        self.blocks.len() - vacant.count()
    }
}

impl std::ops::Index<BlockId> for BlockTable {
    type Output = Block;

    #[inline]
    fn index(&self, id: BlockId) -> &Block {
        &self.blocks[id.index()]
    }
}

impl std::ops::IndexMut<BlockId> for BlockTable {
    #[inline]
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.index()]
    }
}
