//! Elastic segments in a heap: wide address ranges, mapped only where blocks need memory.
//!
//! The blocks of an elastic segment tile all of its addresses. An *unmapped* block is a range of addresses without
//! memory. Adjacent free and unmapped blocks form a *free range*. To serve a request there, a thread holds the place of
//! the block, maps chunks in its unmapped parts, and merges everything into one block:
//!
//! ```text
//! before    | allocated | free |    unmapped    | free | allocated |
//! hold                  |~~~~~~~~~~~~~~~~~~~~~~~~~|                    no other request gets these blocks
//! fill                  | free |chunk|chunk|chunk | free |
//! commit    | allocated |      allocated     |    free   | allocated |
//! ```
//!
//! A chunk that lies completely inside a free block is *idle*: a thread can cut it out and move it. The old addresses
//! are a *pending unmap* until no queued work uses them. Then they become an unmapped block.

mod free_blocks;

use crate::blocks::start_index::StartIndex;
use crate::blocks::table::Block;
use crate::blocks::{BlockId, BlockState, Chunk, FreeRange, HeapBlocks, ReuseGuard, Segment, SegmentId};
use crate::size::{SegmentKind, UNIT, kind_of};

/// A block that a thread holds, and its previous state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReservedBlock {
    pub(crate) block: BlockId,
    was: BlockState,
}

impl<G: ReuseGuard> HeapBlocks<G> {
    pub(crate) fn elastic() -> Self {
        let mut blocks = Self::default();
        blocks.set_elastic(true);
        blocks
    }

    /// Sets the kind of the segments that are added from now on. There is none.
    pub(crate) fn set_elastic(&mut self, elastic: bool) {
        self.chunk_map = elastic.then(Box::default);
    }

    /// Adds an elastic segment as one unmapped block. Returns `None` if the tables are full.
    pub(crate) fn add_addresses(&mut self, base: u64, bytes: u64, order: u64) -> Option<SegmentId> {
        let starts = StartIndex::Parts(Vec::new());
        let (id, first) = self.put_segment(base, bytes, SegmentKind::Large, order, starts)?;
        self.become_unmapped(first);
        Some(id)
    }

    /// Holds all addresses from `at` to `end`, which are free or unmapped, so that no other request gets them.
    ///
    /// [`commit`](Self::commit), [`abandon`](Self::abandon) or [`put_back`](Self::put_back) must follow. Returns `None`
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

    /// Finds the block that contains `address`, starting from a block of the same segment.
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

    /// Splits the addresses from `at` to `end` out of a free or unmapped block, and holds them.
    fn split_out(&mut self, id: BlockId, at: u64, end: u64) -> Option<ReservedBlock> {
        let (start, stop) = (self.blocks[id].address, self.blocks[id].end());
        let middle = if at > start { self.blocks.claim()? } else { id };
        let back = if end < stop { self.blocks.claim() } else { None };
        if end < stop && back.is_none() {
            if middle != id {
                self.blocks.remove(middle);
            }
            return None;
        }
        let was = self.blocks[id].state;
        self.withdraw(id);
        if middle != id {
            self.split_off(id, middle, units_of(at - start));
            self.return_as(id, was);
        }
        if let Some(back) = back {
            self.split_off(middle, back, units_of(end - at));
            self.return_as(back, was);
        }
        self.blocks[middle].state = BlockState::Reserved;
        Some(ReservedBlock { block: middle, was })
    }

    /// Restores the previous state of every held block.
    pub(crate) fn put_back(&mut self, held: Vec<ReservedBlock>) {
        for ReservedBlock { block, was } in held {
            if was == BlockState::Free {
                self.become_free(block);
            } else {
                self.become_unmapped(block);
            }
        }
    }

    /// Holds all addresses of a segment without memory. Returns `None` if it is unknown.
    pub(crate) fn hold_segment(&mut self, id: SegmentId) -> Option<Vec<ReservedBlock>> {
        let Segment { base, bytes, first, .. } = *self.segments.get(id)?;
        self.hold(first, base, base + bytes)
    }

    /// Frees held blocks, which have memory now.
    pub(crate) fn free_held(&mut self, held: Vec<ReservedBlock>) {
        for ReservedBlock { block, .. } in held {
            self.become_free(block);
        }
    }

    /// Merges the held blocks into one allocated block, and frees what `rounded` does not need. Both also get `guards`.
    pub(crate) fn commit(&mut self, held: &[ReservedBlock], rounded: u64, guards: Vec<G>) -> BlockId {
        let first = held[0].block;
        for piece in &held[1..] {
            self.merge(first, piece.block);
        }
        if !guards.is_empty() {
            self.guard(first, guards);
        }
        if rounded < self.blocks[first].bytes()
            && let Some(rest) = self.split_rest(first, units_of(rounded))
        {
            self.become_free(rest);
        }
        let block = &mut self.blocks[first];
        block.state = BlockState::Allocated;
        block.kind = kind_of(block.bytes());
        self.last_found = BlockId::NONE;
        first
    }

    /// Marks held addresses as a pending unmap after their chunk has moved. Returns the guards of the block.
    pub(crate) fn abandon(&mut self, held: ReservedBlock) -> Vec<G> {
        self.blocks[held.block].state = BlockState::PendingUnmap;
        self.take_guards(held.block)
    }

    /// Turns a block without memory into an unmapped block.
    pub(crate) fn become_unmapped(&mut self, mut id: BlockId) {
        let (before, after) = (self.blocks[id].before, self.blocks[id].after);
        let is_hole = |block: &Block| block.state == BlockState::Unmapped;
        if self.blocks.get(before).is_some_and(is_hole) {
            self.withdraw(before);
            self.merge(before, id);
            id = before;
        }
        if self.blocks.get(after).is_some_and(is_hole) {
            self.withdraw(after);
            self.merge(id, after);
        }
        self.return_as(id, BlockState::Unmapped);
    }

    /// The idle chunks, by position, each with the free block around it.
    pub(crate) fn idle_chunks(&mut self) -> Vec<(Chunk, BlockId)> {
        self.coalesce();
        let Some(chunk_map) = &self.chunk_map else { return Vec::new() };
        let around = |block: BlockId| {
            let (start, end) = (self.blocks[block].address, self.blocks[block].end());
            let chunks = chunk_map.chunks.range(start..end).map(move |(_, chunk)| (*chunk, block));
            chunks.filter(move |(chunk, _)| chunk.end() <= end)
        };
        chunk_map.places.iter().flat_map(around).collect()
    }

    pub(crate) fn add_chunk(&mut self, chunk: Chunk) {
        if let Some(chunk_map) = &mut self.chunk_map {
            chunk_map.chunks.insert(chunk.at, chunk);
        }
    }

    pub(crate) fn remove_chunk(&mut self, at: u64) {
        if let Some(chunk_map) = &mut self.chunk_map {
            chunk_map.chunks.remove(&at);
        }
    }

    /// Excludes the unmapped addresses of a segment from all free ranges. Its memory stays usable.
    pub(crate) fn close_addresses(&mut self, segment: SegmentId) {
        if let Some(chunk_map) = &mut self.chunk_map {
            chunk_map.closed.insert(segment);
        }
    }

    /// Closes the segments without memory that are `wanted`.
    pub(crate) fn close_unmapped(&mut self, wanted: impl Fn(&Segment) -> bool) {
        let is_unused = |segment: &Segment| {
            let first = &self.blocks[segment.first];
            first.state == BlockState::Unmapped && first.is_whole() && wanted(segment)
        };
        let unused: Vec<_> = self.segments.iter().filter(|(_, segment)| is_unused(segment)).map(|(id, _)| id).collect();
        for id in unused {
            self.close_addresses(id);
        }
    }

    /// Removes the closed segments without memory, which serve no request any more. Returns their addresses and bytes.
    pub(crate) fn remove_closed(&mut self) -> Vec<(u64, u64)> {
        let Some(chunk_map) = &mut self.chunk_map else { return Vec::new() };
        let is_unused = |id: &SegmentId| {
            let first = self.segments.get(*id).map(|segment| &self.blocks[segment.first]);
            first.is_some_and(|block| block.state == BlockState::Unmapped && block.is_whole())
        };
        let unused: Vec<SegmentId> = chunk_map.closed.extract_if(is_unused).collect();
        let mut ranges = Vec::with_capacity(unused.len());
        for id in unused {
            let Some(segment) = self.segments.get(id) else { continue };
            ranges.push((segment.base, segment.bytes));
            self.withdraw(segment.first);
            self.leave(id);
        }
        ranges
    }

    /// The position of the first byte of a segment.
    pub(crate) fn place_of(&self, id: SegmentId) -> Option<u64> {
        Some(self.blocks[self.segments.get(id)?.first].place())
    }

    /// The free or unmapped block that contains a position.
    fn open_block(&self, place: u64) -> Option<BlockId> {
        let chunk_map = self.chunk_map.as_ref()?;
        let before = chunk_map.holes.range(..=place).next_back().map(|(_, hole)| *hole);
        let hole = before.filter(|hole| self.blocks[*hole].last() >= place);
        hole.or_else(|| chunk_map.places.around(&self.blocks, place))
    }

    /// Allocates `bytes` at a position, or returns `BlockId::NONE` if any byte there is in use or has no memory.
    pub(crate) fn allocate_placed(&mut self, place: u64, bytes: u64) -> BlockId {
        self.coalesce();
        let Some(id) = self.open_block(place).filter(|id| self.blocks[*id].is_free()) else { return BlockId::NONE };
        let at = self.address_of(id, place);
        if at + bytes > self.blocks[id].end() {
            return BlockId::NONE;
        }
        let Some(held) = self.hold(id, at, at + bytes) else { return BlockId::NONE };
        self.commit(&held, bytes, Vec::new())
    }

    /// Does the same at an address of a segment.
    pub(crate) fn allocate_in(&mut self, segment: SegmentId, address: u64, bytes: u64) -> BlockId {
        let base = self.segments.get(segment).map(|segment| segment.base);
        let offset = base.and_then(|base| address.checked_sub(base));
        match offset.zip(self.place_of(segment)) {
            Some((offset, first)) => self.allocate_placed(first + offset / UNIT, bytes),
            None => BlockId::NONE,
        }
    }

    /// The address of a position in a block.
    fn address_of(&self, id: BlockId, place: u64) -> u64 {
        let block = &self.blocks[id];
        block.address + (place - block.place()) * UNIT
    }

    /// The free range around `bytes` at a position, and the address. Returns `None` if any byte there is in use.
    pub(crate) fn run_at(&mut self, place: u64, bytes: u64) -> Option<(FreeRange, u64)> {
        self.coalesce();
        let id = self.open_block(place)?;
        let (run, at) = (self.run_around(id), self.address_of(id, place));
        (at + bytes <= run.end).then_some((run, at))
    }

    /// Splits an allocated block at an offset of `bytes`. Returns the second part, or `None` if the table is full.
    pub(crate) fn split_allocated(&mut self, id: BlockId, bytes: u64) -> Option<BlockId> {
        let rest = self.split_rest(id, units_of(bytes))?;
        let front = &mut self.blocks[id];
        let (state, label, slow_free, requested) = (front.state, front.label, front.slow_free, front.requested);
        front.requested = bytes;
        front.kind = kind_of(bytes);
        let rest_block = &mut self.blocks[rest];
        rest_block.state = state;
        rest_block.label = label;
        rest_block.slow_free = slow_free;
        rest_block.requested = requested - bytes;
        self.last_found = BlockId::NONE;
        Some(rest)
    }

    /// Every free range, by position.
    pub(crate) fn runs(&mut self) -> Vec<FreeRange> {
        self.coalesce();
        let Some(chunk_map) = &self.chunk_map else { return Vec::new() };
        let mut runs: Vec<FreeRange> = Vec::new();
        let open = |hole: &&BlockId| !chunk_map.closed.contains(&self.blocks[**hole].segment);
        for hole in chunk_map.holes.values().filter(open) {
            let at = self.blocks[*hole].address;
            if runs.last().is_none_or(|last| !(last.start..last.end).contains(&at)) {
                runs.push(self.run_around(*hole));
            }
        }
        runs
    }

    fn run_around(&self, anchor: BlockId) -> FreeRange {
        let is_open = |id: &BlockId| matches!(self.blocks[*id].state, BlockState::Free | BlockState::Unmapped);
        let mut first = anchor;
        while let Some(before) = self.blocks[first].before.get().filter(is_open) {
            first = before;
        }
        let start = self.blocks[first].address;
        let mut run = FreeRange { anchor, start, end: start, free: Vec::new() };
        let mut at = Some(first);
        while let Some(id) = at {
            let block = &self.blocks[id];
            if block.state == BlockState::Free {
                run.free.push((run.end, block.end()));
            }
            run.end = block.end();
            at = block.after.get().filter(is_open);
        }
        run
    }
}

impl<G> HeapBlocks<G> {
    /// The chunks under the addresses from `start` to `end`, by address.
    pub(crate) fn chunks_under(&self, start: u64, end: u64) -> Vec<Chunk> {
        let Some(chunk_map) = &self.chunk_map else { return Vec::new() };
        // Only the last chunk that begins before `start` can reach beyond it.
        let before = chunk_map.chunks.range(..start).next_back().filter(|(_, chunk)| chunk.end() > start);
        before.into_iter().chain(chunk_map.chunks.range(start..end)).map(|(_, chunk)| *chunk).collect()
    }

    pub(crate) fn chunks(&self) -> Vec<Chunk> {
        self.chunk_map.iter().flat_map(|chunk_map| chunk_map.chunks.values().copied()).collect()
    }
}

/// Converts bytes to units. The bytes are at most those of a segment, so the result fits.
#[expect(clippy::cast_possible_truncation, reason = "a segment has at most 2^32 units")]
const fn units_of(bytes: u64) -> u32 {
    (bytes / UNIT) as u32
}
