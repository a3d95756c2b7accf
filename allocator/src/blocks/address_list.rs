//! Free blocks in order of position, with a search for the first that is large enough.
//!
//! The list consists of leaves of up to [`LEAF`] blocks. It records the first position of each leaf, and a bound on the
//! size of its blocks. A search compares one bound per leaf, and then the sizes in one leaf. A block that grows, shrinks
//! or changes its index keeps its entry if the order stays the same.
//!
//! A bound may be too high after the largest block of its leaf has shrunk or gone. A search that finds no block there
//! lowers it: most bounds rise again before a search looks at them.

use crate::blocks::BlockId;
use crate::blocks::table::{Block, BlockTable};

/// The most blocks in a leaf.
const LEAF: usize = 64;
/// The blocks of a leaf that a search compares at once.
const ROW: usize = 16;
/// Adjacent leaves with at most this many blocks are merged.
const FEW: usize = LEAF / 2;

/// Free blocks in order of [`Block::place`]: oldest segment first, then by address.
#[derive(Debug, Default)]
pub(crate) struct AddressList {
    /// The first position in each leaf.
    starts: Vec<u64>,
    /// The grains that no block in each leaf exceeds.
    bounds: Vec<u32>,
    /// No leaf is empty.
    #[expect(clippy::vec_box, reason = "a leaf is a kilobyte, and those after a new one move")]
    leaves: Vec<Box<AddressLeaf>>,
}

/// Adjacent blocks.
#[derive(Debug)]
struct AddressLeaf {
    count: usize,
    places: [u64; LEAF],
    /// Zero in unused entries.
    units: [u32; LEAF],
    ids: [BlockId; LEAF],
}

impl AddressLeaf {
    const EMPTY: Self = Self { count: 0, places: [0; LEAF], units: [0; LEAF], ids: [BlockId::NONE; LEAF] };

    fn largest(&self) -> u32 {
        self.units.iter().fold(0, |most, units| most.max(*units))
    }

    /// Finds the first block of at least `units`.
    #[expect(clippy::needless_bitwise_bool, reason = "without branches, the processor compares several at once")]
    fn first(&self, units: u32) -> Option<usize> {
        let fits = |row: &[u32]| row.iter().fold(false, |any, has| any | (*has >= units));
        let row = self.units.chunks_exact(ROW).position(fits)? * ROW;
        self.units[row..row + ROW].iter().position(|has| *has >= units).map(|at| row + at)
    }

    /// The number of blocks before a position.
    fn before(&self, place: u64) -> usize {
        self.places[..self.count].partition_point(|known| *known < place)
    }

    fn set(&mut self, at: usize, block: &Block, id: BlockId) {
        self.places[at] = block.place();
        self.units[at] = block.units;
        self.ids[at] = id;
    }

    fn insert(&mut self, at: usize, block: &Block, id: BlockId) {
        let last = self.count;
        self.places.copy_within(at..last, at + 1);
        self.units.copy_within(at..last, at + 1);
        self.ids.copy_within(at..last, at + 1);
        self.count += 1;
        self.set(at, block, id);
    }

    fn remove(&mut self, at: usize) {
        let last = self.count;
        self.places.copy_within(at + 1..last, at);
        self.units.copy_within(at + 1..last, at);
        self.ids.copy_within(at + 1..last, at);
        self.count -= 1;
        self.units[self.count] = 0;
    }

    /// Moves the blocks from `from` on to the end of another leaf, which has room for them.
    fn move_to(&mut self, from: usize, other: &mut Self) {
        let (moved, end) = (self.count - from, other.count);
        other.places[end..end + moved].copy_from_slice(&self.places[from..self.count]);
        other.units[end..end + moved].copy_from_slice(&self.units[from..self.count]);
        other.ids[end..end + moved].copy_from_slice(&self.ids[from..self.count]);
        other.count += moved;
        self.units[from..].fill(0);
        self.count = from;
    }
}

/// The entry of a block, valid until the list changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) id: BlockId,
    leaf: usize,
    at: usize,
}

impl AddressList {
    /// Finds the first block of at least `units`.
    pub(crate) fn first(&mut self, units: u32) -> Option<Entry> {
        let mut from = 0;
        loop {
            let leaf = from + self.bounds[from..].iter().position(|bound| *bound >= units)?;
            let there = &self.leaves[leaf];
            if let Some(at) = there.first(units) {
                return Some(Entry { id: there.ids[at], leaf, at });
            }
            self.bounds[leaf] = units - 1;
            from = leaf + 1;
        }
    }

    /// Inserts a free block.
    pub(crate) fn insert(&mut self, blocks: &BlockTable, id: BlockId) {
        let block = &blocks[id];
        if self.leaves.is_empty() {
            self.add_leaf(0, Box::new(AddressLeaf::EMPTY));
        }
        let mut leaf = self.leaf_of(block.place());
        if self.leaves[leaf].count == LEAF {
            let mut upper = Box::new(AddressLeaf::EMPTY);
            self.leaves[leaf].move_to(LEAF / 2, &mut upper);
            let belongs_above = block.place() > upper.places[0];
            self.add_leaf(leaf + 1, upper);
            self.refresh(leaf);
            leaf += usize::from(belongs_above);
        }
        let there = &mut self.leaves[leaf];
        there.insert(there.before(block.place()), block, id);
        self.starts[leaf] = there.places[0];
        self.bounds[leaf] = self.bounds[leaf].max(block.units);
    }

    /// Removes the block at a position.
    pub(crate) fn remove(&mut self, place: u64) {
        let leaf = self.leaf_of(place);
        let there = &mut self.leaves[leaf];
        there.remove(there.before(place));
        if there.count > 0 {
            self.starts[leaf] = there.places[0];
        } else {
            self.drop_leaf(leaf);
        }
        self.thin_out(leaf);
        self.thin_out(leaf.wrapping_sub(1));
    }

    /// Finds the block at a position.
    pub(crate) fn at(&self, place: u64) -> Entry {
        let leaf = self.leaf_of(place);
        let there = &self.leaves[leaf];
        let at = there.before(place);
        Entry { id: there.ids[at], leaf, at }
    }

    /// Replaces the block of an entry by `id`. No other block lies between the two.
    pub(crate) fn replace(&mut self, blocks: &BlockTable, Entry { leaf, at, .. }: Entry, id: BlockId) {
        let block = &blocks[id];
        let there = &mut self.leaves[leaf];
        there.set(at, block, id);
        self.starts[leaf] = there.places[0];
        self.bounds[leaf] = self.bounds[leaf].max(block.units);
    }

    /// Every block, in order of position.
    pub(crate) fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        let leaves = self.leaves.iter();
        leaves.flat_map(|leaf| leaf.ids[..leaf.count].iter().copied())
    }

    /// Returns whether every entry matches its block, in order, and the start and the bound of every leaf its entries.
    pub(crate) fn agrees(&self, blocks: &BlockTable) -> bool {
        let sorted = self.iter().is_sorted_by_key(|id| blocks[id].place());
        let leaves = self.leaves.iter().enumerate().all(|(at, leaf)| {
            let ids = leaf.ids[..leaf.count].iter().enumerate();
            let same = |(at, id): (usize, &BlockId)| {
                let block = &blocks[*id];
                (leaf.places[at], leaf.units[at]) == (block.place(), block.units)
            };
            leaf.count > 0
                && self.starts[at] == leaf.places[0]
                && self.bounds[at] >= leaf.largest()
                && ids.into_iter().all(same)
        });
        sorted && leaves
    }

    /// Returns the leaf for a position. The list must not be empty.
    fn leaf_of(&self, place: u64) -> usize {
        let after = self.starts.partition_point(|start| *start <= place);
        after.saturating_sub(1)
    }

    /// Recomputes the start and the bound of a leaf.
    fn refresh(&mut self, leaf: usize) {
        let there = &self.leaves[leaf];
        self.starts[leaf] = there.places[0];
        self.bounds[leaf] = there.largest();
    }

    fn add_leaf(&mut self, at: usize, leaf: Box<AddressLeaf>) {
        self.starts.insert(at, leaf.places[0]);
        self.bounds.insert(at, leaf.largest());
        self.leaves.insert(at, leaf);
    }

    fn drop_leaf(&mut self, at: usize) -> Box<AddressLeaf> {
        self.starts.remove(at);
        self.bounds.remove(at);
        self.leaves.remove(at)
    }

    /// Merges this leaf with the next one, if both have few blocks.
    fn thin_out(&mut self, leaf: usize) {
        let (this, next) = (self.leaves.get(leaf), self.leaves.get(leaf.wrapping_add(1)));
        let count = |leaf: Option<&Box<AddressLeaf>>| leaf.map_or(LEAF, |leaf| leaf.count);
        if count(this) + count(next) > FEW {
            return;
        }
        let mut next = self.drop_leaf(leaf + 1);
        next.move_to(0, &mut self.leaves[leaf]);
        self.refresh(leaf);
    }
}

#[cfg(test)]
mod tests;
