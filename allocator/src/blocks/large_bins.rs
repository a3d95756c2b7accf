//! Free blocks of large segments, ordered by size, age of the segment (youngest first) and address.
//!
//! Each power of two has 32 bins, and two levels of bits find the first bin that is not empty. The blocks of a bin form
//! a treap, with priorities that derive from their indices. A bin holds few blocks, so a search takes few steps however
//! many blocks exist. No operation allocates host memory.

use std::cmp::Ordering;

use crate::blocks::BlockId;
use crate::blocks::check::bits_agree;
use crate::blocks::table::{Block, BlockTable};

/// Below this size in units, every size has a separate bin.
const EXACT: u32 = 64;
/// log2 of the number of bins per power of two, from `EXACT` on.
const FINE: u32 = 5;
const BINS: usize = EXACT as usize + ((32 - 6) << FINE);
const WORDS: usize = BINS.div_ceil(64);

pub(crate) struct LargeBins {
    /// Bit `w` is set if `words[w]` is not zero.
    summary: u32,
    /// Bit `b` of word `w` is set if bin `64 * w + b` is not empty.
    words: [u64; WORDS],
    roots: Box<[BlockId; BINS]>,
}

impl Default for LargeBins {
    fn default() -> Self {
        Self { summary: 0, words: [0; WORDS], roots: Box::new([BlockId::NONE; BINS]) }
    }
}

/// Where a link to a block is stored.
#[derive(Clone, Copy)]
enum TreapSlot {
    Root(usize),
    Left(BlockId),
    Right(BlockId),
}

impl LargeBins {
    /// Returns the best fit: the smallest block that is large enough, in the youngest segment, at the lowest address.
    pub(crate) fn best(&self, blocks: &BlockTable, units: u32) -> BlockId {
        let bin = bin_of(units);
        let mut best = BlockId::NONE;
        let mut at = self.roots[bin];
        while at.is_some() {
            let block = &blocks[at];
            if block.units >= units {
                best = at;
                at = block.left;
            } else {
                at = block.right;
            }
        }
        if best.is_some() {
            return best;
        }
        self.bin_after(bin).map_or(BlockId::NONE, |bin| {
            let mut first = self.roots[bin];
            while blocks[first].left.is_some() {
                first = blocks[first].left;
            }
            first
        })
    }

    fn bin_after(&self, bin: usize) -> Option<usize> {
        let word = bin / 64;
        let here = self.words[word] & (!1_u64 << (bin % 64));
        if here != 0 {
            return Some(word * 64 + here.trailing_zeros() as usize);
        }
        let above = (self.summary >> word) >> 1;
        if above == 0 {
            return None;
        }
        let word = word + 1 + above.trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    pub(crate) fn insert(&mut self, blocks: &mut BlockTable, id: BlockId) {
        let block = &mut blocks[id];
        let bin = bin_of(block.units);
        let mut at = self.roots[bin];
        if !at.is_some() {
            block.left = BlockId::NONE;
            block.right = BlockId::NONE;
            self.roots[bin] = id;
            self.words[bin / 64] |= 1 << (bin % 64);
            self.summary |= 1 << (bin / 64);
            return;
        }
        let priority = id.scatter();
        let mut slot = TreapSlot::Root(bin);
        while at.is_some() && at.scatter() > priority {
            slot = side(&blocks[id], at, &blocks[at]);
            at = self.link(blocks, slot);
        }
        self.set_link(blocks, slot, id);
        self.part(blocks, at, id);
    }

    /// Splits the tree at `at` into the blocks before and after `id`, and makes both subtrees children of `id`.
    fn part(&mut self, blocks: &mut BlockTable, mut at: BlockId, id: BlockId) {
        let (mut before, mut after) = (TreapSlot::Left(id), TreapSlot::Right(id));
        while at.is_some() {
            if order(&blocks[at], &blocks[id]) == Ordering::Less {
                self.set_link(blocks, before, at);
                before = TreapSlot::Right(at);
                at = blocks[at].right;
            } else {
                self.set_link(blocks, after, at);
                after = TreapSlot::Left(at);
                at = blocks[at].left;
            }
        }
        self.set_link(blocks, before, BlockId::NONE);
        self.set_link(blocks, after, BlockId::NONE);
    }

    pub(crate) fn remove(&mut self, blocks: &mut BlockTable, id: BlockId) {
        let block = &blocks[id];
        let (mut left, mut right) = (block.left, block.right);
        let bin = bin_of(block.units);
        let mut slot = TreapSlot::Root(bin);
        let mut at = self.roots[bin];
        while at != id {
            slot = side(&blocks[id], at, &blocks[at]);
            at = self.link(blocks, slot);
        }
        // Merges the two subtrees; the root with the higher priority becomes the parent.
        while left.is_some() && right.is_some() {
            if left.scatter() > right.scatter() {
                self.set_link(blocks, slot, left);
                slot = TreapSlot::Right(left);
                left = blocks[left].right;
            } else {
                self.set_link(blocks, slot, right);
                slot = TreapSlot::Left(right);
                right = blocks[right].left;
            }
        }
        self.set_link(blocks, slot, if left.is_some() { left } else { right });
        if !self.roots[bin].is_some() {
            self.words[bin / 64] &= !(1 << (bin % 64));
            if self.words[bin / 64] == 0 {
                self.summary &= !(1 << (bin / 64));
            }
        }
    }

    #[inline]
    fn link(&self, blocks: &BlockTable, slot: TreapSlot) -> BlockId {
        match slot {
            TreapSlot::Root(bin) => self.roots[bin],
            TreapSlot::Left(id) => blocks[id].left,
            TreapSlot::Right(id) => blocks[id].right,
        }
    }

    #[inline]
    fn set_link(&mut self, blocks: &mut BlockTable, slot: TreapSlot, to: BlockId) {
        match slot {
            TreapSlot::Root(bin) => self.roots[bin] = to,
            TreapSlot::Left(id) => blocks[id].left = to,
            TreapSlot::Right(id) => blocks[id].right = to,
        }
    }

    pub(crate) fn in_order(&self, blocks: &BlockTable) -> Vec<BlockId> {
        let mut found = Vec::new();
        let mut path = Vec::new();
        for root in self.roots.iter() {
            let mut at = *root;
            while at.is_some() || !path.is_empty() {
                while at.is_some() {
                    path.push(at);
                    at = blocks[at].left;
                }
                if let Some(id) = path.pop() {
                    found.push(id);
                    at = blocks[id].right;
                }
            }
        }
        found
    }

    pub(crate) fn bits_agree(&self) -> bool {
        bits_agree(self.summary.into(), &self.words, &*self.roots)
    }
}

/// Returns the bin of a size in units. Bins are in order of size.
#[inline]
const fn bin_of(units: u32) -> usize {
    if units < EXACT {
        return units as usize;
    }
    let octave = units.ilog2();
    let fine = (units >> (octave - FINE)) & ((1 << FINE) - 1);
    (EXACT + ((octave - 6) << FINE) + fine) as usize
}

/// The order of the trees: size, then age of the segment (youngest first), then address.
#[inline]
fn order(a: &Block, b: &Block) -> Ordering {
    (a.units, a.rank).cmp(&(b.units, b.rank))
}

/// Returns the side of the block at `at` on which the block `new` belongs.
#[inline]
fn side(new: &Block, at: BlockId, there: &Block) -> TreapSlot {
    if order(new, there) == Ordering::Less { TreapSlot::Left(at) } else { TreapSlot::Right(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_in_order_of_size_and_cover_every_size() {
        let mut last = bin_of(1);
        for bin in (1..100_000).map(bin_of) {
            assert!(bin == last || bin == last + 1, "{bin} after {last}");
            last = bin;
        }
        for bin in (100_000..u32::MAX).step_by(99_991).map(bin_of) {
            assert!(bin >= last, "{bin} after {last}");
            last = bin;
        }
        assert_eq!(bin_of(u32::MAX), BINS - 1);
    }
}
