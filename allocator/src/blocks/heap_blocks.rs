//! The segments and blocks of one heap: allocate, free, split and merge.

mod guards;
mod raw;
mod segments;

pub(crate) use guards::ReuseGuard;
pub(crate) use segments::IdleSegment;
pub(crate) use segments::rank_of;

use std::collections::HashMap;

use crate::blocks::large_bins::LargeBins;
use crate::blocks::segment::Segments;
use crate::blocks::small_bins::SmallBins;
use crate::blocks::table::{Block, BlockTable};
use crate::blocks::{BlockId, BlockState, ChunkMap, Segment, SegmentId};
use crate::heap_policy::HeapPolicy;
use crate::size::{SegmentKind, UNIT, kind_of};

/// The segments and blocks of one heap.
///
/// The last-freed block is neither merged nor listed until the next request. If that request has the same size and no
/// other block was listed in between, a merge and a search would find the same block. The request then gets the block
/// as it is. Otherwise the block is coalesced first, so that every search finds it. A program that frees and allocates
/// the same size pays for no merge and no split. The placement of blocks does not change.
///
/// `G` is a guard: the next user of a free block must wait for it. Splits and merges keep the guards of all bytes.
pub(crate) struct HeapBlocks<G> {
    pub(crate) blocks: BlockTable,
    pub(crate) segments: Segments,
    pub(crate) small: SmallBins,
    pub(crate) large: LargeBins,
    /// The one block in state [`BlockState::LastFreed`].
    pub(crate) last_freed: BlockId,
    /// The block that the last search returned, if no block was listed since. If freed, a search would return it again.
    pub(crate) last_found: BlockId,
    /// Counts requests while ages matter. The heap increments it.
    pub(crate) clock: u32,
    /// The listed free blocks that are not whole segments, for small and large segments.
    pub(crate) split: [Split; 2],
    /// While `split` is at or below this value, no peak can have been exceeded.
    pub(crate) watermark: [Split; 2],
    /// The highest value of `split` above `watermark`.
    peak_since_flush: [Split; 2],
    /// Whether `split` was above `watermark`, so that a peak may have been exceeded.
    pub(crate) above_watermark: bool,
    /// The guards of every block that is `guarded`.
    pub(crate) guards: HashMap<BlockId, Vec<G>>,
    /// The chunks under the blocks, if the segments are elastic.
    pub(crate) chunk_map: Option<Box<ChunkMap>>,
}

impl<G> Default for HeapBlocks<G> {
    fn default() -> Self {
        Self {
            blocks: BlockTable::default(),
            segments: Segments::default(),
            small: SmallBins::default(),
            large: LargeBins::default(),
            last_freed: BlockId::NONE,
            last_found: BlockId::NONE,
            clock: 0,
            split: [Split::default(); 2],
            watermark: [Split::default(); 2],
            peak_since_flush: [Split::default(); 2],
            above_watermark: false,
            guards: HashMap::new(),
            chunk_map: None,
        }
    }
}

impl<G: ReuseGuard> HeapBlocks<G> {
    /// Allocates the best fit for `rounded` bytes. Returns `BlockId::NONE` if no block fits.
    #[inline(always)]
    pub(crate) fn allocate(&mut self, policy: &HeapPolicy, rounded: u64) -> BlockId {
        let Ok(units) = u32::try_from(rounded / UNIT) else { return BlockId::NONE };
        let last_freed = self.last_freed;
        if last_freed.is_some() && last_freed == self.last_found {
            let block = &mut self.blocks[last_freed];
            if block.units == units {
                block.state = BlockState::Allocated;
                self.last_freed = BlockId::NONE;
                return last_freed;
            }
        }
        self.search(policy, rounded, units)
    }

    #[inline(always)]
    fn search(&mut self, policy: &HeapPolicy, rounded: u64, units: u32) -> BlockId {
        if self.chunk_map.is_some() {
            return self.search_elastic(units);
        }
        self.coalesce_inline();
        let kind = kind_of(rounded);
        let id = match kind {
            SegmentKind::Small => self.small.best(units),
            SegmentKind::Large => self.large.best(&self.blocks, units),
        };
        if !id.is_some() {
            return id;
        }
        if !policy.admits(rounded, self.blocks[id].bytes()) {
            return BlockId::NONE;
        }
        self.split_remainder(policy, id, rounded, units);
        self.last_found = id;
        id
    }

    /// Removes a block from the lists for a request, and splits off the remainder.
    #[inline(always)]
    fn split_remainder(&mut self, policy: &HeapPolicy, id: BlockId, rounded: u64, units: u32) {
        let block = &mut self.blocks[id];
        let (bytes, whole, kind) = (block.bytes(), block.is_whole(), block.kind);
        block.state = BlockState::Allocated;
        self.unlist(id, kind);
        let mut gone = Split { blocks: 1, bytes };
        if policy.splits(kind, rounded, bytes - rounded)
            && let Some(rest) = self.split_rest(id, units)
        {
            self.list(rest, kind);
            gone = Split { blocks: 0, bytes: rounded };
            if whole {
                self.split_grows(kind, 1, bytes - rounded);
            }
        }
        if !whole {
            let split = &mut self.split[kind as usize];
            split.blocks -= gone.blocks;
            split.bytes -= gone.bytes;
        }
    }

    /// Allocates a block for `rounded` bytes from a segment that was just added, even if another block would fit.
    pub(crate) fn allocate_from_segment(
        &mut self,
        policy: &HeapPolicy,
        segment: SegmentId,
        rounded: u64,
    ) -> Option<BlockId> {
        let first = self.segments.get(segment)?.first;
        let units = u32::try_from(rounded / UNIT).ok()?;
        if self.blocks[first].state != BlockState::Free || self.blocks[first].units < units {
            return None;
        }
        self.split_remainder(policy, first, rounded, units);
        Some(first)
    }

    /// Shrinks the block to `units` and turns the remainder into a separate free block, which the caller lists. Returns
    /// `None` if the table has no room for another block. The block then stays larger than necessary.
    #[inline(always)]
    pub(crate) fn split_rest(&mut self, id: BlockId, units: u32) -> Option<BlockId> {
        let rest = self.blocks.claim()?;
        self.split_off(id, rest, units);
        Some(rest)
    }

    /// Does the same with an index that is claimed already.
    #[inline(always)]
    pub(crate) fn split_off(&mut self, id: BlockId, rest: BlockId, units: u32) {
        if self.blocks.split(id, rest, units) {
            self.copy_guards(id, rest);
        }
    }

    /// Frees an allocated or pending block.
    #[inline(always)]
    pub(crate) fn free(&mut self, id: BlockId) {
        if self.last_freed.is_some() {
            self.coalesce();
        }
        self.blocks[id].state = BlockState::LastFreed;
        self.last_freed = id;
    }

    /// Merges the last-freed block with its free neighbours and lists it.
    #[inline(never)]
    pub(crate) fn coalesce(&mut self) {
        self.coalesce_inline();
    }

    /// Takes the block that was freed last and is not coalesced, if there is one. The caller lists it.
    #[inline(always)]
    pub(crate) fn take_last_freed(&mut self) -> Option<BlockId> {
        std::mem::replace(&mut self.last_freed, BlockId::NONE).get()
    }

    #[inline(always)]
    fn coalesce_inline(&mut self) {
        let Some(mut id) = self.take_last_freed() else { return };
        self.last_found = BlockId::NONE;
        if self.chunk_map.is_some() {
            return self.become_free(id);
        }
        let block = &self.blocks[id];
        let (before, after, kind, bytes) = (block.before, block.after, block.kind, block.bytes());
        let mut absorbed = 0;
        if self.blocks.get(before).is_some_and(Block::is_free) {
            self.unlist(before, kind);
            self.merge(before, id);
            id = before;
            absorbed = 1;
        }
        if self.blocks.get(after).is_some_and(Block::is_free) {
            self.unlist(after, kind);
            self.merge(id, after);
            absorbed += 1;
        }
        let block = &mut self.blocks[id];
        block.state = BlockState::Free;
        block.born = self.clock;
        let (whole, joined) = (block.is_whole(), block.bytes());
        self.list(id, kind);
        let split = &mut self.split[kind as usize];
        split.blocks -= absorbed;
        if whole {
            split.bytes -= joined - bytes;
        } else {
            self.split_grows(kind, 1, bytes);
        }
    }

    /// Merges `left` with `right`, the block after it. The index of `left` remains.
    #[inline(always)]
    pub(crate) fn merge(&mut self, left: BlockId, right: BlockId) {
        if self.blocks[right].guarded {
            self.join_guards(left, right);
        }
        self.blocks.merge(left, right);
    }

    #[inline]
    pub(crate) fn list(&mut self, id: BlockId, kind: SegmentKind) {
        match kind {
            SegmentKind::Small => self.small.insert(&mut self.blocks, id),
            SegmentKind::Large => self.large.insert(&mut self.blocks, id),
        }
    }

    #[inline]
    pub(crate) fn unlist(&mut self, id: BlockId, kind: SegmentKind) {
        match kind {
            SegmentKind::Small => self.small.remove(&mut self.blocks, id),
            SegmentKind::Large => self.large.remove(&mut self.blocks, id),
        }
    }
}

impl<G> HeapBlocks<G> {
    pub(crate) fn segment_of(&self, id: BlockId) -> Option<&Segment> {
        self.segments.get(self.blocks[id].segment)
    }

    /// Counts new free parts of segments.
    #[inline]
    pub(crate) fn split_grows(&mut self, kind: SegmentKind, blocks: u64, bytes: u64) {
        let split = &mut self.split[kind as usize];
        split.blocks += blocks;
        split.bytes += bytes;
        let watermark = &self.watermark[kind as usize];
        if split.blocks > watermark.blocks || split.bytes > watermark.bytes {
            let peak_since_flush = &mut self.peak_since_flush[kind as usize];
            peak_since_flush.blocks = peak_since_flush.blocks.max(split.blocks);
            peak_since_flush.bytes = peak_since_flush.bytes.max(split.bytes);
            self.above_watermark = true;
        }
    }

    /// Returns the free parts of segments, by kind: the current value, and the highest since the last call.
    pub(crate) fn take_split(&mut self) -> [(Split, Split); 2] {
        self.above_watermark = false;
        let peak_since_flush = std::mem::take(&mut self.peak_since_flush);
        std::array::from_fn(|kind| {
            let now = self.split[kind];
            let blocks = peak_since_flush[kind].blocks.max(now.blocks);
            let bytes = peak_since_flush[kind].bytes.max(now.bytes);
            (now, Split { blocks, bytes })
        })
    }
}

/// Free blocks that are only a part of their segment: memory that cannot be released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
}
