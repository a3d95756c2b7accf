//! Elastic segments on a shelf: wide ranges of addresses, filled with memory only where blocks need it.
//!
//! The blocks of an elastic segment tile all of its addresses. Some of them are *holes*: addresses without
//! memory. Free blocks and holes side by side form a *run*. To serve a request from a run, its place there is
//! held, the holes under it are filled with chunks, and all becomes one block:
//!
//! ```text
//! before    | allocated | free |      hole      | free | allocated |
//! hold                  |~~~~~~~~~~~~~~~~~~~~~~~~~|                    nobody else gets these blocks
//! fill                  | free |chunk|chunk|chunk | free |
//! commit    | allocated |      allocated     |    free   | allocated |
//! ```
//!
//! Chunks that lie wholly inside free blocks are *spare*: they are cut out, and serve where they are needed. The
//! addresses they leave behind are *stale* until nothing can use them any more, and holes from then on.

mod chunks;
mod free_list;
mod ranges;

use crate::blocks::guard::add_guards;
use crate::blocks::segment::Segment;
use crate::blocks::start_index::StartIndex;
use crate::blocks::table::Block;
use crate::blocks::{BlockId, BlockState, HeapBlocks, ReuseGuard, SegmentId};
use crate::size::{SegmentKind, UNIT};

/// A part of the addresses that somebody works on, and what it was before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReservedBlock {
    pub(crate) block: BlockId,
    was: BlockState,
}

impl<G: ReuseGuard> HeapBlocks<G> {
    /// A shelf whose segments are elastic.
    pub(crate) fn elastic() -> Self {
        let mut blocks = Self::default();
        blocks.chunk_map = Some(Box::default());
        blocks
    }

    /// Adds an elastic segment, all of it a hole; `None` when the tables are full.
    pub(crate) fn add_addresses(&mut self, base: u64, bytes: u64) -> Option<SegmentId> {
        let segment = Segment {
            base,
            bytes,
            kind: SegmentKind::Large,
            first: BlockId::NONE,
            age: self.segments.next_age()?,
            order: 0,
            starts: StartIndex::parts(),
        };
        let (id, first) = self.put_segment(segment)?;
        self.become_hole(first);
        Some(id)
    }

    /// Holds all addresses from `at` to `end`, which are free or holes: nobody else gets them.
    ///
    /// [`commit`](Self::commit), [`abandon`](Self::abandon) or [`put_back`](Self::put_back) must follow. `None`
    /// if the tables are full; then nothing is held.
    pub(crate) fn hold(&mut self, near: BlockId, at: u64, end: u64) -> Option<Vec<ReservedBlock>> {
        let mut held = Vec::new();
        let mut next = at;
        let mut block = self.block_around(near, at);
        while next < end {
            let stop = end.min(self.blocks[block].end());
            let Some(piece) = self.split_out(block, next, stop) else {
                self.put_back(held);
                return None;
            };
            held.push(piece);
            (next, block) = (stop, self.blocks[piece.block].after);
        }
        Some(held)
    }

    /// The block that `address` lies in, on the way from a block of the same segment.
    fn block_around(&self, near: BlockId, address: u64) -> BlockId {
        let mut id = near;
        while self.blocks[id].address > address {
            id = self.blocks[id].before;
        }
        while self.blocks[id].end() <= address {
            id = self.blocks[id].after;
        }
        id
    }

    /// Cuts the addresses from `at` to `end` out of a free block or a hole, and holds them.
    fn split_out(&mut self, id: BlockId, at: u64, end: u64) -> Option<ReservedBlock> {
        let (start, stop) = (self.blocks[id].address, self.blocks[id].end());
        let middle = if at > start { self.blocks.claim()? } else { id };
        let back = if end < stop {
            let back = self.blocks.claim();
            if back.is_none() {
                if middle != id {
                    self.blocks.remove(middle);
                }
                return None;
            }
            back
        } else {
            None
        };
        let was = self.blocks[id].state;
        self.withdraw(id);
        if middle != id {
            self.split_off(id, middle, at);
            self.return_as(id, was);
        }
        if let Some(back) = back {
            self.split_off(middle, back, end);
            self.return_as(back, was);
        }
        self.blocks[middle].state = BlockState::Held;
        Some(ReservedBlock { block: middle, was })
    }

    /// Makes what `id` has from the address `at` on a block of its own, in the claimed index `new`; neither is
    /// listed.
    fn split_off(&mut self, id: BlockId, new: BlockId, at: u64) {
        let front = &self.blocks[id];
        let units = units_of(at - front.address);
        let (rank, segment, after, guarded) = (front.rank, front.segment, front.after, front.guarded);
        let (kind, born) = (front.kind, front.born);
        let left = front.units - units;
        let block = &mut self.blocks[new];
        block.address = at;
        block.rank = rank + u64::from(units);
        block.units = left;
        block.segment = segment;
        block.before = id;
        block.after = after;
        block.kind = kind;
        block.born = born;
        self.blocks[id].units = units;
        self.blocks[id].after = new;
        if after.is_some() {
            self.blocks[after].before = new;
        }
        if guarded {
            self.copy_guards(id, new);
        }
    }

    /// Puts everything back as it was.
    pub(crate) fn put_back(&mut self, held: Vec<ReservedBlock>) {
        for ReservedBlock { block, was } in held {
            if was == BlockState::Free {
                self.become_free(block);
            } else {
                self.become_hole(block);
            }
        }
    }

    /// Makes one allocated block of what is held and filled by now, and leaves what `rounded` does not need as a
    /// free block. `guards` stand before their next use, besides those that stood there.
    pub(crate) fn commit(&mut self, held: &[ReservedBlock], rounded: u64, guards: Vec<G>) -> BlockId {
        let first = held[0].block;
        for piece in &held[1..] {
            self.merge(first, piece.block);
        }
        if !guards.is_empty() {
            self.blocks[first].guarded = true;
            add_guards(self.guards.entry(first).or_default(), guards);
        }
        let end = self.blocks[first].address + rounded;
        if end < self.blocks[first].end()
            && let Some(rest) = self.blocks.claim()
        {
            self.split_off(first, rest, end);
            self.become_free(rest);
        }
        let block = &mut self.blocks[first];
        block.state = BlockState::Allocated;
        block.kind = SegmentKind::of(block.bytes());
        self.last_freed = BlockId::NONE;
        first
    }

    /// Makes addresses stale whose chunk has gone.
    pub(crate) fn abandon(&mut self, held: ReservedBlock) {
        self.take_guards(held.block);
        self.blocks[held.block].state = BlockState::Stale;
    }

    /// Makes a hole of a block that has no memory any more.
    pub(crate) fn become_hole(&mut self, mut id: BlockId) {
        let (before, after) = (self.blocks[id].before, self.blocks[id].after);
        let is_hole = |block: &Block| block.state == BlockState::Hole;
        if self.blocks.get(before).is_some_and(is_hole) {
            self.withdraw(before);
            self.merge(before, id);
            id = before;
        }
        if self.blocks.get(after).is_some_and(is_hole) {
            self.withdraw(after);
            self.merge(id, after);
        }
        self.return_as(id, BlockState::Hole);
    }

    /// Guards that stand before the next use of what is held.
    pub(crate) fn guards_of(&self, held: ReservedBlock) -> Vec<G> {
        self.guards.get(&held.block).cloned().unwrap_or_default()
    }
}

impl Block {
    /// The address after the last byte.
    pub(crate) const fn end(&self) -> u64 {
        self.address + self.bytes()
    }
}

/// Bytes in grains; less than the segment they are of, which has no more than fit.
#[expect(clippy::cast_possible_truncation, reason = "a segment has at most 2^32 grains")]
const fn units_of(bytes: u64) -> u32 {
    (bytes / UNIT) as u32
}
