//! The index from an offset in a segment to the block that begins there.

use crate::blocks::BlockId;
use crate::blocks::table::BlockTable;
use crate::size::{SMALL_LIMIT, SegmentKind, UNIT};

/// log2 of the units in a part of an elastic segment.
const PART_SHIFT: u32 = 12;
const PART: usize = 1 << PART_SHIFT;
/// The most blocks of a part whose offsets are compared one by one.
const FEW: usize = 8;

/// The blocks of a segment that are known by their address.
///
/// Entries are hints, which a lookup compares with the block, since merging leaves outdated entries.
pub(crate) enum StartIndex {
    /// For every stretch of `1 << shift` units, the last block that began in it.
    Even { blocks: Box<[BlockId]>, shift: u32 },
    /// For blocks of all sizes in a sparse address range. A part of 2 MiB costs one entry while one block begins in it,
    /// a cache line while few do, and four pages otherwise.
    Parts(Vec<StartPart>),
}

/// The blocks that begin in one part of an elastic segment.
pub(crate) enum StartPart {
    /// At one offset at most: the offset in the part, and the block.
    One(u32, BlockId),
    /// At few offsets.
    Few(Box<FewStarts>),
    /// At any offset.
    Many(Box<[BlockId; PART]>),
}

/// Few blocks, each with its offset in the part.
pub(crate) struct FewStarts {
    offsets: [u16; FEW],
    /// `BlockId::NONE` in unused entries.
    ids: [BlockId; FEW],
}

impl FewStarts {
    #[inline]
    fn entry(&self, at: usize) -> Option<usize> {
        (0..FEW).find(|entry| usize::from(self.offsets[*entry]) == at && self.ids[*entry].is_some())
    }

    /// Records a block. Returns `false` if too many begin in the part.
    #[expect(clippy::cast_possible_truncation, reason = "a part has 4096 offsets")]
    fn note(&mut self, at: usize, id: BlockId, is_outdated: impl Fn(usize, BlockId) -> bool) -> bool {
        let outdated = |entry: &usize| is_outdated(usize::from(self.offsets[*entry]), self.ids[*entry]);
        let Some(entry) = self.entry(at).or_else(|| (0..FEW).find(outdated)) else { return false };
        (self.offsets[entry], self.ids[entry]) = (at as u16, id);
        true
    }
}

impl StartIndex {
    /// An empty index for a segment of `bytes` bytes whose blocks are of one kind.
    pub(crate) fn even(bytes: u64, kind: SegmentKind) -> Self {
        // Blocks of large segments are longer than the small limit, so no two begin in one stretch of it.
        let shift = match kind {
            SegmentKind::Small => 0,
            SegmentKind::Large => (SMALL_LIMIT / UNIT).ilog2(),
        };
        let stretches = (bytes / UNIT).div_ceil(1 << shift);
        Self::Even { blocks: (0..stretches).map(|_| BlockId::NONE).collect(), shift }
    }

    /// Records that `id` begins at `offset` units. Every other indexed block stays known.
    #[inline]
    pub(crate) fn note(&mut self, blocks: &BlockTable, offset: u32, id: BlockId) {
        match self {
            Self::Even { blocks, shift } => blocks[(offset >> *shift) as usize] = id,
            Self::Parts(parts) => note_in_part(parts, blocks, offset, id),
        }
    }

    /// Returns the block that may begin at `offset` units.
    #[inline]
    pub(crate) fn hint(&self, offset: u32) -> BlockId {
        match self {
            Self::Even { blocks, shift } => {
                let hint = blocks.get((offset >> *shift) as usize);
                hint.copied().unwrap_or(BlockId::NONE)
            }
            Self::Parts(parts) => match parts.get((offset >> PART_SHIFT) as usize) {
                None => BlockId::NONE,
                Some(StartPart::One(_, id)) => *id,
                Some(StartPart::Few(few)) => few.entry(within(offset)).map_or(BlockId::NONE, |entry| few.ids[entry]),
                Some(StartPart::Many(ids)) => ids[within(offset)],
            },
        }
    }
}

fn note_in_part(parts: &mut Vec<StartPart>, blocks: &BlockTable, offset: u32, id: BlockId) {
    let index = (offset >> PART_SHIFT) as usize;
    if parts.len() <= index {
        parts.resize_with(index + 1, || StartPart::One(0, BlockId::NONE));
    }
    let at = within(offset);
    let is_outdated = |at: usize, id: BlockId| {
        let begins_there = |offset: u32| ((offset >> PART_SHIFT) as usize, within(offset)) == (index, at);
        !blocks.get(id).is_some_and(|block| block.indexed && begins_there(block.offset()))
    };
    let part = &mut parts[index];
    match part {
        StartPart::One(one, known) if within(*one) == at || is_outdated(within(*one), *known) => {
            (*one, *known) = (offset, id);
        }
        StartPart::One(one, known) => {
            let mut few = FewStarts { offsets: [0; FEW], ids: [BlockId::NONE; FEW] };
            few.note(within(*one), *known, is_outdated);
            few.note(at, id, is_outdated);
            *part = StartPart::Few(Box::new(few));
        }
        StartPart::Few(few) => {
            if few.note(at, id, is_outdated) {
                return;
            }
            let mut ids = Box::new([BlockId::NONE; PART]);
            for (at, id) in few.offsets.iter().zip(few.ids) {
                ids[usize::from(*at)] = id;
            }
            ids[at] = id;
            *part = StartPart::Many(ids);
        }
        StartPart::Many(ids) => ids[at] = id,
    }
}

#[inline]
const fn within(offset: u32) -> usize {
    offset as usize & (PART - 1)
}

#[cfg(test)]
mod tests;
