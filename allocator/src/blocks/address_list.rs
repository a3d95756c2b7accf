//! Free blocks in order of position, with a search for the first that is large enough.
//!
//! The list consists of leaves of 64 slots, some of them empty. A block stores its slot. So a removal moves no other
//! block, nor does a block that takes over the slot of another one. An insertion moves the blocks up to the nearest
//! empty slot.
//!
//! Each slot has the size class of its block in one byte, and a search compares all of a leaf at once. Each leaf has a
//! bound on the size of its blocks. It may be too high after the largest one has shrunk or gone. A search that finds no
//! block in the leaf lowers it: most bounds rise again before a search looks at them.
//!
//! Blocks are ordered by *anchors*: positions inside them. A block that grows or shrinks keeps its anchor while it can.

mod classes;
mod leaf;

use classes::{Class, ENTRIES, Entries};
use leaf::{Leaf, SPREAD};
use wide::u32x8;

use crate::blocks::BlockId;
use crate::blocks::table::BlockTable;

pub(crate) use leaf::Slot;

/// The bounds that a search compares at once.
const ROW: usize = 8;

/// Free blocks in order of [`Block::place`](crate::blocks::Block::place): oldest segment first, then by address.
#[derive(Default)]
pub(crate) struct AddressList {
    /// The leaves by number.
    leaves: Vec<Leaf>,
    /// The numbers of leaves that are not in use. These are empty.
    unused: Vec<usize>,
    /// The numbers of the others, in order. None of these is empty.
    order: Vec<usize>,
    /// A position for each of them: at most its anchors, and above those of the leaves before.
    starts: Vec<u64>,
    /// The units that no block in each of them exceeds. Zeros follow, so that rows are complete.
    bounds: Vec<u32>,
}

impl AddressList {
    #[inline(always)]
    pub(crate) fn first(&mut self, blocks: &BlockTable, units: u32) -> Option<BlockId> {
        let class = Class::of(units);
        for (row, bounds) in self.bounds.as_chunks_mut().0.iter_mut().enumerate() {
            for at in at_least(*bounds, units) {
                let leaf = &self.leaves[self.order[row * ROW + at]];
                let found = leaf.first(blocks, class, units);
                if found.is_some() {
                    return found;
                }
                bounds[at] = units - 1;
            }
        }
        None
    }

    pub(crate) fn insert(&mut self, blocks: &mut BlockTable, id: BlockId) {
        let anchor = blocks[id].last();
        if self.order.is_empty() {
            self.add_leaf(0);
        }
        let mut rank = self.rank_of(anchor);
        if self.leaf(rank).count() == ENTRIES {
            self.split(blocks, rank);
            rank += usize::from(anchor >= self.starts[rank + 1]);
        }
        self.leaf(rank).insert(blocks, id);
        self.starts[rank] = self.starts[rank].min(anchor);
        self.raise_bound(rank, blocks[id].units);
    }

    pub(crate) fn remove(&mut self, blocks: &mut BlockTable, id: BlockId) {
        let slot = blocks[id].slot;
        let leaf = &mut self.leaves[slot.leaf()];
        leaf.clear(slot.at());
        if leaf.count() < SPREAD / 2 {
            let rank = leaf.rank;
            self.thin_out(blocks, rank);
        }
    }

    /// Lists the block `id` in the slot of another one, which is no longer listed. No other block lies between the two.
    #[inline(always)]
    pub(crate) fn replace(&mut self, blocks: &mut BlockTable, slot: Slot, id: BlockId) {
        let block = &mut blocks[id];
        let units = block.units;
        let leaf = &mut self.leaves[slot.leaf()];
        let rank = leaf.rank;
        if let Some(anchor) = leaf.replace(slot.at(), block, id) {
            self.raise_start(rank + 1, anchor);
        }
        self.raise_bound(rank, units);
    }

    /// Every block, in order of position.
    pub(crate) fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.order.iter().flat_map(|number| self.leaves[*number].iter())
    }

    /// Finds the block that contains a position.
    pub(crate) fn around(&self, blocks: &BlockTable, place: u64) -> Option<BlockId> {
        let rank = self.rank_of(place);
        // The anchor of the block may lie before or after the position, so in a neighbour of the leaf.
        let near = self.order.iter().skip(rank.saturating_sub(1)).take(3);
        let mut ids = near.flat_map(|number| self.leaves[*number].iter());
        ids.find(|id| (blocks[*id].place()..=blocks[*id].last()).contains(&place))
    }

    /// Returns whether every entry matches its block, in order, and what is known of every leaf its entries.
    pub(crate) fn agrees(&self, blocks: &BlockTable) -> bool {
        let mut end = None;
        let agree = self.order.iter().enumerate().all(|(rank, number)| {
            let (leaf, start, before) = (&self.leaves[*number], self.starts[rank], end);
            let range = leaf.range();
            end = range.map(|(_, end)| end);
            leaf.agrees(blocks)
                && leaf.rank == rank
                && before < Some(start)
                && range.is_some_and(|(first, _)| start <= first)
                && leaf.iter().all(|id| blocks[id].units <= self.bounds[rank])
        });
        let empty = self.unused.iter().all(|number| self.leaves[*number].count() == 0);
        let (_, rest) = self.bounds.split_at(self.order.len());
        let complete = self.bounds.len().is_multiple_of(ROW) && rest.iter().all(|bound| *bound == 0);
        agree && empty && complete && self.order.len() + self.unused.len() == self.leaves.len()
    }

    fn leaf(&mut self, rank: usize) -> &mut Leaf {
        &mut self.leaves[self.order[rank]]
    }

    /// Returns the rank of the leaf for an anchor. The list must not be empty.
    fn rank_of(&self, anchor: u64) -> usize {
        let after = self.starts.partition_point(|start| *start <= anchor);
        after.saturating_sub(1)
    }

    /// Notes that a leaf has a block of this size.
    #[inline]
    fn raise_bound(&mut self, rank: usize, units: u32) {
        self.bounds[rank] = self.bounds[rank].max(units);
    }

    /// Notes that the leaves before this one have an anchor that is this high.
    #[cold]
    fn raise_start(&mut self, rank: usize, anchor: u64) {
        if let Some(start) = self.starts.get_mut(rank) {
            *start = (*start).max(anchor + 1);
        }
    }

    /// Moves the upper half of a full leaf to a new one.
    #[cold]
    fn split(&mut self, blocks: &mut BlockTable, rank: usize) {
        let ids: Vec<_> = self.leaf(rank).iter().collect();
        let (lower, upper) = ids.split_at(SPREAD);
        self.add_leaf(rank + 1);
        self.fill(blocks, rank, lower);
        self.fill(blocks, rank + 1, upper);
    }

    /// Removes a leaf without blocks, or merges a leaf with a neighbour if both have few.
    fn thin_out(&mut self, blocks: &mut BlockTable, rank: usize) {
        let count = |rank: usize| self.order.get(rank).map(|number| self.leaves[*number].count());
        let few = |next: usize| count(next - 1).zip(count(next)).is_some_and(|(this, next)| this + next <= SPREAD);
        if count(rank) == Some(0) {
            self.drop_leaf(rank);
        } else if let Some(next) = [rank, rank + 1].into_iter().find(|next| *next > 0 && few(*next)) {
            let mut ids: Vec<_> = self.leaf(next - 1).iter().collect();
            ids.extend(self.leaf(next).iter());
            self.leaf(next).spread(blocks, &[]);
            self.drop_leaf(next);
            self.fill(blocks, next - 1, &ids);
        }
    }

    /// Replaces the blocks of a leaf by these, in order.
    fn fill(&mut self, blocks: &mut BlockTable, rank: usize, ids: &[BlockId]) {
        let leaf = self.leaf(rank);
        leaf.spread(blocks, ids);
        if let Some((start, end)) = leaf.range() {
            self.starts[rank] = start;
            self.raise_start(rank + 1, end);
        }
        self.bounds[rank] = ids.iter().map(|id| blocks[*id].units).max().unwrap_or_default();
    }

    /// Adds an empty leaf, which the caller fills.
    fn add_leaf(&mut self, rank: usize) {
        let number = self.unused.pop().unwrap_or_else(|| {
            self.leaves.push(Leaf::new(self.leaves.len()));
            self.leaves.len() - 1
        });
        self.order.insert(rank, number);
        self.starts.insert(rank, u64::MAX);
        self.bounds.insert(rank, 0);
        self.renumber(rank);
    }

    fn drop_leaf(&mut self, rank: usize) {
        self.unused.push(self.order.remove(rank));
        self.starts.remove(rank);
        self.bounds.remove(rank);
        self.renumber(rank);
    }

    /// Writes the ranks of all leaves from `rank` on, and completes the last row of bounds.
    fn renumber(&mut self, rank: usize) {
        self.bounds.resize(self.order.len().next_multiple_of(ROW), 0);
        for (rank, number) in self.order.iter().enumerate().skip(rank) {
            self.leaves[*number].rank = rank;
        }
    }
}

/// Finds the bounds of at least `units`, in order.
#[inline]
fn at_least(bounds: [u32; ROW], units: u32) -> Entries {
    let below = u32x8::new(bounds).simd_lt(u32x8::splat(units));
    Entries(u64::from(below.to_bitmask() ^ ((1 << ROW) - 1)))
}

#[cfg(test)]
mod tests;
