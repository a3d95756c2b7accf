//! Free blocks of small segments: one list for every size, found through two levels of bits.

use crate::blocks::BlockId;
use crate::blocks::check::bits_agree;
use crate::blocks::table::BlockTable;

/// Sizes in units range from 1 to a whole small segment.
const CLASSES: usize = 4096;
const WORDS: usize = CLASSES / 64;

/// Free blocks of small segments.
///
/// Class `c` lists the free blocks of `c + 1` units, most recently freed first.
pub(crate) struct SmallBins {
    /// Bit `w` is set if `words[w]` is not zero.
    summary: u64,
    /// Bit `b` of word `w` is set if the list of class `64 * w + b` is not empty.
    words: [u64; WORDS],
    heads: Box<[BlockId; CLASSES]>,
}

impl Default for SmallBins {
    fn default() -> Self {
        Self { summary: 0, words: [0; WORDS], heads: Box::new([BlockId::NONE; CLASSES]) }
    }
}

impl SmallBins {
    /// Returns the best fit for `units`: the smallest block that is large enough.
    #[inline]
    pub(crate) fn best(&self, units: u32) -> BlockId {
        let class = class_of(units);
        let (word, bit) = (class / 64, class % 64);
        let here = self.words[word] >> bit;
        if here != 0 {
            return self.heads[class + here.trailing_zeros() as usize];
        }
        // The shift by `word + 1` in two steps: the last word has none above it.
        let above = (self.summary >> word) >> 1;
        if above == 0 {
            return BlockId::NONE;
        }
        let word = word + 1 + above.trailing_zeros() as usize;
        let bit = self.words[word].trailing_zeros() as usize;
        self.heads[(word * 64 + bit) & (CLASSES - 1)]
    }

    /// Inserts a free block.
    ///
    /// The processor cannot predict whether a list is empty, so the code has no branch for it. It writes an unused link
    /// into the block itself, and sets a bit that may already be set.
    #[inline(always)]
    pub(crate) fn insert(&mut self, blocks: &mut BlockTable, id: BlockId) {
        // One slice, so that the address and the length are loaded once.
        let blocks = blocks.slots.as_mut_slice();
        let block = &mut blocks[id.0 as usize];
        let class = class_of(block.units);
        let head = std::mem::replace(&mut self.heads[class], id);
        block.right = head;
        let (next, left) = if head.is_some() { (head, id) } else { (id, BlockId::NONE) };
        block.left = BlockId::NONE;
        blocks[next.0 as usize].left = left;
        self.words[class / 64] |= 1 << (class % 64);
        self.summary |= 1 << (class / 64);
    }

    /// Removes a block.
    ///
    /// The processor cannot predict its position either. Where a neighbour is missing, the block itself replaces it.
    #[inline(always)]
    pub(crate) fn remove(&mut self, blocks: &mut BlockTable, id: BlockId) {
        // One slice, so that the address and the length are loaded once.
        let blocks = blocks.slots.as_mut_slice();
        let block = &blocks[id.0 as usize];
        let (left, right, class) = (block.left, block.right, class_of(block.units));
        let next = if right.is_some() { right } else { id };
        blocks[next.0 as usize].left = left;
        if let Some(previous) = blocks.get_mut(left.0 as usize) {
            previous.right = right;
            return;
        }
        self.heads[class] = right;
        let (word, bit) = (&mut self.words[class / 64], class % 64);
        *word = *word & !(1 << bit) | u64::from(right.is_some()) << bit;
        self.summary &= !(u64::from(*word == 0) << (class / 64));
    }

    /// Every listed block, by size.
    pub(crate) fn iter<'a>(&'a self, blocks: &'a BlockTable) -> impl Iterator<Item = BlockId> + 'a {
        let rows = self.heads.chunks(64).zip(&self.words).filter(|(_, word)| **word != 0);
        let heads = rows.flat_map(|(row, _)| row).copied();
        heads.flat_map(move |head| std::iter::successors(head.get(), move |id| blocks[*id].right.get()))
    }

    pub(crate) fn bits_agree(&self) -> bool {
        bits_agree(self.summary, &self.words, &*self.heads)
    }
}

/// Sizes beyond the last class do not occur, since no small segment is larger.
#[inline]
const fn class_of(units: u32) -> usize {
    (units as usize - 1) & (CLASSES - 1)
}
