//! The table of blocks, linked by index.

use crate::blocks::SegmentId;
use crate::blocks::address_list::Slot;
use crate::label::Label;
use crate::size::{SegmentKind, UNIT};

/// Index of a block in its heap's table. The table reuses freed indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockId(pub(crate) u32);

impl BlockId {
    pub(crate) const NONE: Self = Self(u32::MAX);

    #[inline]
    pub(crate) const fn is_some(self) -> bool {
        self.0 != u32::MAX
    }

    /// Returns the id, or `None` for [`NONE`](Self::NONE).
    #[inline]
    pub(crate) const fn get(self) -> Option<Self> {
        if self.is_some() { Some(self) } else { None }
    }

    /// A hash of the index, which serves as the priority in the trees.
    #[inline]
    pub(crate) const fn scatter(self) -> u32 {
        self.0.wrapping_add(1).wrapping_mul(0x9E37_79B1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// The index is not in use.
    Vacant,
    /// Free and listed, so that a search finds it.
    Free,
    /// Free, but neither merged nor listed: the last-freed block.
    LastFreed,
    Allocated,
    /// Freed by its caller, but another stream still uses it.
    Pending,
    /// A whole segment while it is returned to the device.
    Leaving,
    /// Addresses without memory. This state and the next two occur in elastic segments only.
    Unmapped,
    /// Reserved by a thread that is about to map or unmap memory.
    Reserved,
    /// The chunk has moved, but queued work may still use these addresses.
    PendingUnmap,
}

/// A contiguous part of one segment.
///
/// The blocks of a segment tile it: each block begins at the end of the previous one.
#[derive(Clone, Copy, Debug)]
// One cache line each, so that an access touches only one line.
#[repr(align(64))]
pub(crate) struct Block {
    /// Address of the first byte: the base of the segment plus the offset.
    pub(crate) address: u64,
    /// Rank of the segment in the upper half, offset in units in the lower: the order among blocks of equal size.
    pub(crate) rank: u64,
    /// Requested bytes; valid while the block is allocated or pending.
    pub(crate) requested: u64,
    /// Size in units; never zero.
    pub(crate) units: u32,
    pub(crate) segment: SegmentId,
    /// The block that ends at the first byte of this one.
    pub(crate) before: BlockId,
    /// The block that begins at the end of this one.
    pub(crate) after: BlockId,
    /// A link of the free structure: the previous block of a list, or the left child in a tree.
    pub(crate) left: BlockId,
    /// A link of the free structure: the next block of a list, or the right child in a tree.
    pub(crate) right: BlockId,
    /// Where the address list contains the block; only while it does.
    pub(crate) slot: Slot,
    /// The clock when the whole segment became free. The age of the segment counts from there.
    pub(crate) born: u32,
    pub(crate) state: BlockState,
    /// The kind of the segment. In an elastic segment, the kind of requests of this size.
    pub(crate) kind: SegmentKind,
    /// The label of the request; only while the block is allocated.
    pub(crate) label: Label,
    /// Whether the start index of the segment contains the block.
    pub(crate) indexed: bool,
    /// Whether the free of the block takes the slow path: other streams use it, or a stopped history has recorded its
    /// stack. Only while it is allocated or pending.
    pub(crate) slow_free: bool,
    /// Whether the block has guards: while it is free, and until its allocating caller has received them.
    pub(crate) guarded: bool,
}

impl Block {
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.state == BlockState::Free
    }

    /// Whether a caller or queued work uses it.
    #[inline]
    pub(crate) const fn is_in_use(&self) -> bool {
        matches!(self.state, BlockState::Allocated | BlockState::Pending)
    }

    /// Offset from the start of the segment, in units.
    #[inline]
    pub(crate) const fn offset(&self) -> u32 {
        (self.rank & 0xFFFF_FFFF) as u32
    }

    /// Position among all blocks of the heap: the age of the segment, then the offset.
    #[inline]
    pub(crate) const fn place(&self) -> u64 {
        self.rank ^ (0xFFFF_FFFF << 32)
    }

    #[inline]
    pub(crate) const fn last(&self) -> u64 {
        self.place() + self.units as u64 - 1
    }

    #[inline]
    pub(crate) const fn bytes(&self) -> u64 {
        self.units as u64 * UNIT
    }

    pub(crate) const fn end(&self) -> u64 {
        self.address + self.bytes()
    }

    /// Returns whether the block fills its segment.
    #[inline]
    pub(crate) const fn is_whole(&self) -> bool {
        !self.before.is_some() && !self.after.is_some()
    }
}

const _: () = assert!(size_of::<Block>() == 64);

/// The most blocks of a table, which has 32 GiB then. The address list has at most eight slots for each.
const MOST: u32 = 1 << 29;

/// The block `first` of a table and all blocks after it in their segment, by address.
pub(crate) fn chain(blocks: &[Block], first: BlockId) -> impl Iterator<Item = (BlockId, &Block)> {
    let at = |id: BlockId| blocks.get(id.0 as usize).map(|block| (id, block));
    std::iter::successors(at(first), move |(_, block)| at(block.after))
}

pub(crate) struct BlockTable {
    /// Every slot by index, including vacant ones.
    pub(crate) slots: Vec<Block>,
    /// The first vacant index. The `right` of each vacant block is the next one.
    vacant: BlockId,
}

impl Default for BlockTable {
    fn default() -> Self {
        Self { slots: Vec::new(), vacant: BlockId::NONE }
    }
}

impl BlockTable {
    /// Claims an index with clear flags; the caller sets all other fields. Returns `None` if the table is full.
    #[inline]
    pub(crate) fn claim(&mut self) -> Option<BlockId> {
        let id = self.vacant;
        if !id.is_some() {
            return self.extend();
        }
        let slot = &mut self.slots[id.0 as usize];
        self.vacant = slot.right;
        Some(id)
    }

    #[cold]
    fn extend(&mut self) -> Option<BlockId> {
        let index = u32::try_from(self.slots.len()).ok().filter(|index| *index < MOST)?;
        let id = BlockId(index);
        self.slots.push(Block {
            address: 0,
            rank: 0,
            requested: 0,
            units: 0,
            segment: SegmentId(0),
            before: BlockId::NONE,
            after: BlockId::NONE,
            left: BlockId::NONE,
            right: BlockId::NONE,
            slot: Slot::NONE,
            born: 0,
            state: BlockState::Vacant,
            kind: SegmentKind::Small,
            label: Label::OWNED,
            indexed: false,
            slow_free: false,
            guarded: false,
        });
        Some(id)
    }

    /// Removes a block that is neither in use nor guarded.
    #[inline]
    pub(crate) fn remove(&mut self, id: BlockId) {
        let vacant = self.vacant;
        let slot = &mut self[id];
        slot.state = BlockState::Vacant;
        slot.right = vacant;
        slot.indexed = false;
        self.vacant = id;
    }

    /// Returns a block, or `None` for [`BlockId::NONE`], which is out of range for every table.
    #[inline]
    pub(crate) fn get(&self, id: BlockId) -> Option<&Block> {
        self.slots.get(id.0 as usize)
    }

    /// Returns a block for changes, or `None` for [`BlockId::NONE`].
    #[inline]
    pub(crate) fn get_mut(&mut self, id: BlockId) -> Option<&mut Block> {
        self.slots.get_mut(id.0 as usize)
    }

    /// Shrinks a block; the rest becomes free, in `rest`. Returns whether there are guards, which the caller copies.
    #[inline(always)]
    pub(crate) fn split(&mut self, id: BlockId, rest: BlockId, units: u32) -> bool {
        let blocks = self.slots.as_mut_slice();
        let front = &mut blocks[id.0 as usize];
        let (address, rank, segment) = (front.address, front.rank, front.segment);
        let (left, after, kind, guarded) = (front.units - units, front.after, front.kind, front.guarded);
        front.units = units;
        front.after = rest;
        let block = &mut blocks[rest.0 as usize];
        block.address = address + u64::from(units) * UNIT;
        block.rank = rank + u64::from(units);
        block.units = left;
        block.segment = segment;
        block.before = id;
        block.after = after;
        block.state = BlockState::Free;
        block.kind = kind;
        if let Some(next) = blocks.get_mut(after.0 as usize) {
            next.before = rest;
        }
        guarded
    }

    /// Merges `right`, the block after `left`, into `left`, and removes it from the table.
    #[inline(always)]
    pub(crate) fn merge(&mut self, left: BlockId, right: BlockId) {
        let blocks = self.slots.as_mut_slice();
        let gone = &mut blocks[right.0 as usize];
        let (units, after) = (gone.units, gone.after);
        gone.state = BlockState::Vacant;
        gone.right = std::mem::replace(&mut self.vacant, right);
        gone.indexed = false;
        let joined = &mut blocks[left.0 as usize];
        joined.units += units;
        joined.after = after;
        if let Some(next) = blocks.get_mut(after.0 as usize) {
            next.before = left;
        }
    }

    /// Returns the number of blocks. The function counts them, since only the consistency check needs the number.
    pub(crate) fn len(&self) -> usize {
        let vacant = std::iter::successors(self.vacant.get(), |id| self[*id].right.get());
        self.slots.len() - vacant.count()
    }
}

impl std::ops::Index<BlockId> for BlockTable {
    type Output = Block;

    #[inline]
    fn index(&self, id: BlockId) -> &Block {
        &self.slots[id.0 as usize]
    }
}

impl std::ops::IndexMut<BlockId> for BlockTable {
    #[inline]
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.slots[id.0 as usize]
    }
}
