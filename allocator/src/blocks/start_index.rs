//! The index from an offset in a segment to the block that begins there.

use crate::blocks::BlockId;
use crate::size::{SMALL_LIMIT, SegmentKind, UNIT};

/// log2 of the grains in a part of an elastic segment.
const PART_SHIFT: u32 = 12;
const PART: usize = 1 << PART_SHIFT;

/// The blocks of a segment that are known by their address.
///
/// Entries are hints, which a lookup compares with the block, since merging leaves outdated entries.
#[derive(Debug)]
pub(crate) enum StartIndex {
    /// For every stretch of `1 << shift` grains, the last block that began in it.
    Even { blocks: Box<[BlockId]>, shift: u32 },
    /// For blocks of all sizes in a sparse address range. A part of 2 MiB costs one entry until blocks begin at two
    /// offsets in it.
    Parts(Vec<StartPart>),
}

/// The blocks that begin in one part of an elastic segment.
#[derive(Debug)]
pub(crate) enum StartPart {
    /// At one offset at most: the offset in the part, and the block.
    One(u32, BlockId),
    /// At any offset.
    Many(Box<[BlockId; PART]>),
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

    /// An empty index for an elastic segment.
    pub(crate) const fn parts() -> Self {
        Self::Parts(Vec::new())
    }

    /// Records that `id` begins at `offset` grains.
    #[inline]
    pub(crate) fn note(&mut self, offset: u32, id: BlockId) {
        match self {
            Self::Even { blocks, shift } => blocks[(offset >> *shift) as usize] = id,
            Self::Parts(parts) => note_in_part(parts, offset, id),
        }
    }

    /// Returns the block that may begin at `offset` grains.
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
                Some(StartPart::Many(ids)) => ids[within(offset)],
            },
        }
    }
}

fn note_in_part(parts: &mut Vec<StartPart>, offset: u32, id: BlockId) {
    let index = (offset >> PART_SHIFT) as usize;
    if parts.len() <= index {
        parts.resize_with(index + 1, || StartPart::One(0, BlockId::NONE));
    }
    match &mut parts[index] {
        StartPart::One(at, known) if !known.is_some() || within(*at) == within(offset) => {
            (*at, *known) = (offset, id);
        }
        StartPart::One(at, known) => {
            let mut ids = Box::new([BlockId::NONE; PART]);
            ids[within(*at)] = *known;
            ids[within(offset)] = id;
            parts[index] = StartPart::Many(ids);
        }
        StartPart::Many(ids) => ids[within(offset)] = id,
    }
}

/// The offset in its part.
#[inline]
const fn within(offset: u32) -> usize {
    offset as usize & (PART - 1)
}

#[cfg(test)]
mod tests;
