//! A leaf of the address list: slots in order, some of them empty.

use crate::blocks::BlockId;
use crate::blocks::address_list::classes::{Class, Classes, ENTRIES};
use crate::blocks::table::{Block, BlockTable};

const SLOTS: usize = ENTRIES;
/// The most blocks that a leaf has after [`Leaf::spread`], with an empty slot after each.
pub(super) const SPREAD: usize = SLOTS / 2;

/// The slot of a listed block: the number of its leaf, and the slot there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

impl Slot {
    pub(crate) const NONE: Self = Self(u32::MAX);

    #[inline]
    pub(super) const fn leaf(self) -> usize {
        self.0 as usize / SLOTS
    }

    #[inline]
    pub(super) const fn at(self) -> usize {
        self.0 as usize % SLOTS
    }
}

pub(super) struct Leaf {
    /// The first slot. The blocks store its successors.
    first: Slot,
    /// How many leaves are before this one.
    pub(super) rank: usize,
    /// One bit per slot, set if it has a block.
    used: u64,
    /// [`Class::NONE`] in empty slots.
    classes: Classes,
    /// A position in each block, in order. The anchor of an empty slot only keeps this order.
    anchors: [u64; SLOTS],
    ids: [BlockId; SLOTS],
}

impl Leaf {
    #[expect(clippy::cast_possible_truncation, reason = "a table with that many blocks is full")]
    pub(super) fn new(number: usize) -> Self {
        let (anchors, ids) = ([u64::MAX; SLOTS], [BlockId::NONE; SLOTS]);
        Self { first: Slot((number * SLOTS) as u32), rank: 0, used: 0, classes: Classes::default(), anchors, ids }
    }

    pub(super) const fn count(&self) -> usize {
        self.used.count_ones() as usize
    }

    /// The anchors of the first and the last block.
    pub(super) fn range(&self) -> Option<(u64, u64)> {
        let at = |slot: u32| self.anchors[slot as usize];
        self.used.checked_ilog2().map(|last| (at(self.used.trailing_zeros()), at(last)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.slots().map(|at| self.ids[at])
    }

    fn slots(&self) -> impl Iterator<Item = usize> + '_ {
        (0..SLOTS).filter(|at| self.used >> at & 1 == 1)
    }

    /// Finds the first block of at least `units`, which have this class.
    #[inline]
    pub(super) fn first(&self, blocks: &BlockTable, class: Class, units: u32) -> Option<BlockId> {
        let mut fitting = self.classes.at_least(class).map(|at| self.ids[at]);
        // A block of the same class may still be smaller.
        fitting.find(|id| blocks[*id].units >= units)
    }

    /// Lists a block in the slot of another one. No other block lies between the two. Returns the anchor, if it is new.
    #[inline]
    pub(super) fn replace(&mut self, at: usize, block: &mut Block, id: BlockId) -> Option<u64> {
        self.ids[at] = id;
        self.classes.set(at, Class::of(block.units));
        block.slot = self.slot(at);
        // Only the rest of a split block can begin after the anchor.
        (self.anchors[at] < block.place()).then(|| self.set_anchor(at, block.last()))
    }

    /// Raises the anchor of a slot, and those of empty slots after it.
    #[cold]
    fn set_anchor(&mut self, at: usize, anchor: u64) -> u64 {
        self.anchors[at] = anchor;
        for after in self.anchors[at + 1..].iter_mut().take_while(|known| **known < anchor) {
            *after = anchor;
        }
        anchor
    }

    pub(super) fn clear(&mut self, at: usize) {
        self.used &= !(1 << at);
        self.classes.set(at, Class::NONE);
    }

    /// Inserts a block. The leaf is not full.
    #[expect(clippy::cast_possible_truncation, reason = "there are 64 slots")]
    pub(super) fn insert(&mut self, blocks: &mut BlockTable, id: BlockId) {
        let anchor = blocks[id].last();
        let at = self.anchors.partition_point(|known| *known < anchor);
        let empty = !self.used;
        // The number of blocks before the next empty slot, from this slot on and before it; 64 if there is none.
        let after = empty.unbounded_shr(at as u32).trailing_zeros() as usize;
        let before = empty.unbounded_shl((SLOTS - at) as u32).leading_zeros() as usize;
        let slot = if after <= before {
            (at..at + after).rev().for_each(|from| self.shift(blocks, from, from + 1));
            at
        } else {
            (at - before..at).for_each(|from| self.shift(blocks, from, from - 1));
            at - 1
        };
        self.set(slot, &mut blocks[id], id);
    }

    /// Writes a block into an empty slot.
    fn set(&mut self, at: usize, block: &mut Block, id: BlockId) {
        self.used |= 1 << at;
        self.ids[at] = id;
        self.anchors[at] = block.last();
        self.classes.set(at, Class::of(block.units));
        block.slot = self.slot(at);
    }

    /// Moves a block to the empty slot beside its own.
    fn shift(&mut self, blocks: &mut BlockTable, from: usize, to: usize) {
        let id = self.ids[from];
        self.used |= 1 << to;
        self.ids[to] = id;
        self.anchors[to] = self.anchors[from];
        self.classes.set(to, self.classes.get(from));
        blocks[id].slot = self.slot(to);
    }

    /// Replaces all blocks by these, at most [`SPREAD`] in order, with an empty slot after each.
    pub(super) fn spread(&mut self, blocks: &mut BlockTable, ids: &[BlockId]) {
        self.used = 0;
        self.classes = Classes::default();
        self.anchors = [u64::MAX; SLOTS];
        for (at, id) in ids.iter().enumerate() {
            self.set(at * 2, &mut blocks[*id], *id);
            self.anchors[at * 2 + 1] = self.anchors[at * 2];
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "it is below 64")]
    const fn slot(&self, at: usize) -> Slot {
        Slot(self.first.0 + at as u32)
    }

    /// Returns whether every slot matches its block, and anchors are in order.
    pub(super) fn agrees(&self, blocks: &BlockTable) -> bool {
        let same = |at: usize| {
            let block = &blocks[self.ids[at]];
            (block.place()..=block.last()).contains(&self.anchors[at])
                && self.classes.get(at) == Class::of(block.units)
                && self.slot(at) == block.slot
        };
        let matches = |at| if self.used >> at & 1 == 1 { same(at) } else { self.classes.get(at) == Class::NONE };
        self.anchors.is_sorted() && (0..SLOTS).all(matches)
    }
}
