//! Free blocks in order of position, with a search for the first that is large enough.
//!
//! The list consists of leaves of 32 slots, some of them empty. A block stores its slot. So a removal moves no other
//! block, nor does a block that takes over the slot of another one. An insertion moves the blocks up to the nearest
//! empty slot.
//!
//! Each slot has the size class of its block in one byte, and each leaf the highest of its classes. A search compares
//! eight of these bytes at a time, without branches. The class of a leaf may be too high after its largest block has
//! shrunk or gone. A search that finds no block there lowers it: most classes rise again before a search looks at them.
//!
//! Blocks are ordered by *anchors*: positions inside them. A block that grows or shrinks keeps its anchor while it can.

mod classes;
mod leaf;

use classes::{Class, Classes, ENTRIES};
use leaf::{Leaf, SPREAD};

use crate::blocks::BlockId;
use crate::blocks::table::BlockTable;

pub(crate) use leaf::Slot;

/// Free blocks in order of [`Block::place`](crate::blocks::Block::place): oldest segment first, then by address.
#[derive(Debug, Default)]
pub(crate) struct AddressList {
    /// The leaves by number.
    leaves: Vec<Leaf>,
    /// The numbers of leaves that are not in use. These are empty.
    unused: Vec<usize>,
    /// The numbers of the others, in order. None of these is empty.
    order: Vec<usize>,
    /// A position for each of them: at most its anchors, and above those of the leaves before.
    starts: Vec<u64>,
    /// A class for each of them that no block there exceeds.
    bounds: Vec<Classes>,
}

impl AddressList {
    /// Finds the first block of at least `units`.
    #[inline(never)]
    pub(crate) fn first(&mut self, blocks: &BlockTable, units: u32) -> Option<BlockId> {
        let class = Class::of(units);
        for (bounds, order) in self.bounds.iter_mut().zip(self.order.chunks(ENTRIES)) {
            for at in bounds.at_least(class) {
                match self.leaves[order[at]].first(blocks, units, class) {
                    Ok(id) => return Some(id),
                    Err(true) => {}
                    Err(false) => bounds.set(at, class.lower()),
                }
            }
        }
        None
    }

    /// Inserts a free block.
    pub(crate) fn insert(&mut self, blocks: &mut BlockTable, id: BlockId) {
        let anchor = blocks[id].last();
        if self.order.is_empty() {
            self.add_leaf(0);
        }
        let mut rank = self.rank_of(anchor);
        if self.leaf(rank).is_full() {
            self.split(blocks, rank);
            rank += usize::from(anchor >= self.starts[rank + 1]);
        }
        self.leaf(rank).insert(blocks, id);
        self.starts[rank] = self.starts[rank].min(anchor);
        self.raise_bound(rank, Class::of(blocks[id].units));
    }

    /// Removes a block.
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
    #[inline]
    pub(crate) fn replace(&mut self, blocks: &mut BlockTable, slot: Slot, id: BlockId) {
        let block = &mut blocks[id];
        let class = Class::of(block.units);
        let leaf = &mut self.leaves[slot.leaf()];
        let rank = leaf.rank;
        if let Some(anchor) = leaf.replace(slot.at(), block, id) {
            self.raise_start(rank + 1, anchor);
        }
        self.raise_bound(rank, class);
    }

    /// Every block, in order of position.
    pub(crate) fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.order.iter().flat_map(|number| self.leaves[*number].iter())
    }

    /// Returns whether every entry matches its block, in order, and what is known of every leaf its entries.
    pub(crate) fn agrees(&self, blocks: &BlockTable) -> bool {
        let leaves = self.order.iter().map(|number| &self.leaves[*number]);
        let mut end = None;
        let agree = leaves.enumerate().all(|(rank, leaf)| {
            let (start, before) = (self.starts[rank], end);
            let range = leaf.range();
            end = range.map(|(_, end)| end);
            leaf.agrees(blocks)
                && leaf.rank == rank
                && before < Some(start)
                && range.is_some_and(|(first, _)| start <= first)
                && self.bounds[rank / ENTRIES].get(rank % ENTRIES) >= leaf.highest()
        });
        let empty = self.unused.iter().all(|number| self.leaves[*number].count() == 0);
        agree && empty && self.order.len() + self.unused.len() == self.leaves.len()
    }

    fn leaf(&mut self, rank: usize) -> &mut Leaf {
        &mut self.leaves[self.order[rank]]
    }

    /// Returns the rank of the leaf for an anchor. The list must not be empty.
    fn rank_of(&self, anchor: u64) -> usize {
        let after = self.starts.partition_point(|start| *start <= anchor);
        after.saturating_sub(1)
    }

    /// Notes that a leaf has a block of this class.
    #[inline]
    fn raise_bound(&mut self, rank: usize, class: Class) {
        let bounds = &mut self.bounds[rank / ENTRIES];
        // The next search waits for a byte that was just written.
        if bounds.get(rank % ENTRIES) < class {
            bounds.set(rank % ENTRIES, class);
        }
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
        let highest = leaf.highest();
        if let Some((start, end)) = leaf.range() {
            self.starts[rank] = start;
            self.raise_start(rank + 1, end);
        }
        self.bounds[rank / ENTRIES].set(rank % ENTRIES, highest);
    }

    /// Adds an empty leaf, which the caller fills.
    fn add_leaf(&mut self, rank: usize) {
        let number = self.unused.pop().unwrap_or_else(|| {
            self.leaves.push(Leaf::new(self.leaves.len()));
            self.leaves.len() - 1
        });
        self.order.insert(rank, number);
        self.starts.insert(rank, u64::MAX);
        self.number_from(rank);
    }

    /// Removes a leaf.
    fn drop_leaf(&mut self, rank: usize) {
        self.unused.push(self.order.remove(rank));
        self.starts.remove(rank);
        self.number_from(rank);
    }

    /// Writes the rank and the class of all leaves from `rank` on.
    fn number_from(&mut self, rank: usize) {
        self.bounds.resize(self.order.len().div_ceil(ENTRIES), Classes::default());
        for rank in rank..self.bounds.len() * ENTRIES {
            let leaf = self.order.get(rank).map(|number| &mut self.leaves[*number]);
            let highest = leaf.map_or(Class::NONE, |leaf| {
                leaf.rank = rank;
                leaf.highest()
            });
            self.bounds[rank / ENTRIES].set(rank % ENTRIES, highest);
        }
    }
}

#[cfg(test)]
mod tests;
