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

use crate::core::block::Block;
use crate::core::guard::add_guards;
use crate::core::segment::Segment;
use crate::core::starts::Starts;
use crate::core::{BlockId, BlockState, Chunk, Guard, Run, SegmentId, Shelf, Spare};
use crate::policy::Policy;
use crate::size::{GRAIN, Kind, SMALL_LIMIT};

/// A part of the addresses that somebody works on, and what it was before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) block: BlockId,
    was: BlockState,
}

impl<G: Guard> Shelf<G> {
    /// A shelf whose segments are elastic.
    pub(crate) fn elastic() -> Self {
        let mut shelf = Self::default();
        shelf.ground = Some(Box::default());
        shelf
    }

    /// Adds an elastic segment, all of it a hole; `None` when the tables are full.
    pub(crate) fn add_addresses(&mut self, base: u64, bytes: u64) -> Option<SegmentId> {
        let segment = Segment {
            base,
            bytes,
            kind: Kind::Large,
            first: BlockId::NONE,
            age: self.segments.next_age()?,
            order: 0,
            starts: Starts::parts(),
        };
        let (id, first) = self.put_segment(segment)?;
        self.become_hole(first);
        Some(id)
    }

    /// The chunks that may be moved, by place.
    pub(crate) fn spares(&mut self) -> Vec<Spare> {
        self.settle();
        let Some(ground) = &self.ground else {
            return Vec::new();
        };
        let mut spares = Vec::new();
        for block in ground.places.iter() {
            let free = &self.blocks[block];
            let (start, within) = (free.address, free.bytes());
            spares.extend(ground.inside(start, start + within).map(|chunk| Spare {
                chunk,
                block,
                within,
            }));
        }
        spares
    }

    /// Every run, by place.
    pub(crate) fn runs(&mut self) -> Vec<Run> {
        self.settle();
        let Some(ground) = &self.ground else {
            return Vec::new();
        };
        let mut runs: Vec<Run> = Vec::new();
        for hole in ground.holes.values() {
            let at = self.blocks[*hole].address;
            if runs
                .last()
                .is_none_or(|last| !(last.start..last.end).contains(&at))
            {
                runs.push(self.run_around(*hole));
            }
        }
        runs
    }

    fn run_around(&self, anchor: BlockId) -> Run {
        let mut first = anchor;
        while let Some(before) = self.blocks[first].before.get()
            && self.blocks[before].can_be_placed_on()
        {
            first = before;
        }
        let start = self.blocks[first].address;
        let mut run = Run {
            anchor,
            start,
            end: start,
            free: Vec::new(),
        };
        let mut at = first.get();
        while let Some(id) = at
            && self.blocks[id].can_be_placed_on()
        {
            let block = &self.blocks[id];
            if block.state == BlockState::Free {
                run.free.push((run.end, block.end()));
            }
            run.end = block.end();
            at = block.after.get();
        }
        run
    }

    /// Holds all addresses from `at` to `end`, which are free or holes: nobody else gets them.
    ///
    /// [`commit`](Self::commit), [`abandon`](Self::abandon) or [`put_back`](Self::put_back) must follow. `None`
    /// if the tables are full; then nothing is held.
    pub(crate) fn hold(&mut self, near: BlockId, at: u64, end: u64) -> Option<Vec<Held>> {
        let mut held = Vec::new();
        let mut next = at;
        let mut block = self.block_around(near, at);
        while next < end {
            let stop = end.min(self.blocks[block].end());
            let Some(piece) = self.cut(block, next, stop) else {
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
    fn cut(&mut self, id: BlockId, at: u64, end: u64) -> Option<Held> {
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
        Some(Held { block: middle, was })
    }

    /// Takes a free block off the lists, or a hole off the holes.
    fn withdraw(&mut self, id: BlockId) {
        let (state, kind, place) = {
            let block = &self.blocks[id];
            (block.state, block.kind, block.place())
        };
        match self.ground.as_deref_mut() {
            Some(ground) if state != BlockState::Free => {
                ground.holes.remove(&place);
            }
            Some(ground) if ground.is_by_place(kind) => ground.places.remove(place),
            _ => self.unlist(id, kind),
        }
    }

    /// Lists a block that is free or a hole, and merged already.
    fn return_as(&mut self, id: BlockId, state: BlockState) {
        let block = &mut self.blocks[id];
        block.state = state;
        if self.ground.is_some() {
            block.kind = Kind::of(block.bytes());
        }
        let (kind, place) = (block.kind, block.place());
        match self.ground.as_deref_mut() {
            Some(ground) if state != BlockState::Free => {
                ground.holes.insert(place, id);
            }
            Some(ground) if ground.is_by_place(kind) => ground.places.insert(&self.blocks, id),
            _ => self.list(id, kind),
        }
    }

    /// Makes what `id` has from the address `at` on a block of its own, in the claimed index `new`; neither is
    /// listed.
    fn split_off(&mut self, id: BlockId, new: BlockId, at: u64) {
        let front = &self.blocks[id];
        let grains = grains_of(at - front.address);
        let (rank, segment, after, guarded) =
            (front.rank, front.segment, front.after, front.guarded);
        let (kind, born) = (front.kind, front.born);
        let left = front.grains - grains;
        let block = &mut self.blocks[new];
        block.address = at;
        block.rank = rank + u64::from(grains);
        block.grains = left;
        block.segment = segment;
        block.before = id;
        block.after = after;
        block.kind = kind;
        block.born = born;
        self.blocks[id].grains = grains;
        self.blocks[id].after = new;
        if after.is_some() {
            self.blocks[after].before = new;
        }
        if guarded {
            self.copy_guards(id, new);
        }
    }

    /// Puts everything back as it was.
    pub(crate) fn put_back(&mut self, held: Vec<Held>) {
        for Held { block, was } in held {
            if was == BlockState::Free {
                self.become_free(block);
            } else {
                self.become_hole(block);
            }
        }
    }

    /// Makes one allocated block of what is held and filled by now, and leaves what `rounded` does not need as a
    /// free block. `guards` stand before their next use, besides those that stood there.
    pub(crate) fn commit(&mut self, held: &[Held], rounded: u64, guards: Vec<G>) -> BlockId {
        let first = held[0].block;
        for piece in &held[1..] {
            self.join(first, piece.block);
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
        block.kind = Kind::of(block.bytes());
        self.again = BlockId::NONE;
        first
    }

    /// Makes addresses stale whose chunk has gone.
    pub(crate) fn abandon(&mut self, held: Held) {
        self.take_guards(held.block);
        self.blocks[held.block].state = BlockState::Stale;
    }

    /// Makes a hole of a block that has no memory any more.
    pub(crate) fn become_hole(&mut self, id: BlockId) {
        let id = self.join_neighbours(id, BlockState::Hole);
        self.return_as(id, BlockState::Hole);
    }

    /// Makes a block free that has memory.
    ///
    /// It is joined with its free neighbours, and takes over the entry of one of them that was listed by place.
    pub(super) fn become_free(&mut self, mut id: BlockId) {
        self.again = BlockId::NONE;
        let (before, after) = (self.blocks[id].before, self.blocks[id].after);
        let mut entry = None;
        if self.blocks.get(after).is_some_and(Block::is_free) {
            entry = self.give_entry_up(after);
            self.join(id, after);
        }
        if self.blocks.get(before).is_some_and(Block::is_free) {
            if let Some(place) = self.give_entry_up(before)
                && let Some(second) = entry.replace(place)
                && let Some(ground) = &mut self.ground
            {
                ground.places.remove(second);
            }
            self.join(before, id);
            id = before;
        }
        match entry {
            Some(place) => self.take_entry_over(place, id),
            None => self.return_as(id, BlockState::Free),
        }
    }

    /// The entry by place of a free block that is about to go, for another to take over. A block that has none is not
    /// listed any more.
    fn give_entry_up(&mut self, id: BlockId) -> Option<u64> {
        let block = &self.blocks[id];
        if self.is_by_place(block.kind) {
            return Some(block.place());
        }
        self.withdraw(id);
        None
    }

    /// Lists a free block in the entry of one that is gone, with none between them.
    fn take_entry_over(&mut self, place: u64, id: BlockId) {
        let block = &mut self.blocks[id];
        block.state = BlockState::Free;
        block.kind = Kind::of(block.bytes());
        if let Some(ground) = &mut self.ground {
            ground.places.replace(&self.blocks, place, id);
        }
    }

    /// Whether free blocks of a kind are listed by place.
    fn is_by_place(&self, kind: Kind) -> bool {
        self.ground
            .as_ref()
            .is_some_and(|ground| ground.is_by_place(kind))
    }

    /// Joins a block that is not listed with its neighbours in `state`, which are taken off their lists.
    fn join_neighbours(&mut self, mut id: BlockId, state: BlockState) -> BlockId {
        let (before, after) = (self.blocks[id].before, self.blocks[id].after);
        if before.is_some() && self.blocks[before].state == state {
            self.withdraw(before);
            self.join(before, id);
            id = before;
        }
        if after.is_some() && self.blocks[after].state == state {
            self.withdraw(after);
            self.join(id, after);
        }
        id
    }

    /// Notes that a chunk lies under the blocks from now on.
    pub(crate) fn add_chunk(&mut self, chunk: Chunk) {
        if let Some(ground) = &mut self.ground {
            ground.add(chunk);
        }
    }

    /// Notes that the chunk at an address is gone.
    pub(crate) fn remove_chunk(&mut self, at: u64) {
        if let Some(ground) = &mut self.ground {
            ground.remove(at);
        }
    }

    /// Every chunk, by address.
    pub(crate) fn chunks(&self) -> Vec<Chunk> {
        let ground = self.ground.iter();
        ground.flat_map(|ground| ground.chunks()).collect()
    }

    /// The chunks that a range of addresses touches, by address.
    pub(crate) fn chunks_under(&self, start: u64, end: u64) -> Vec<Chunk> {
        let ground = self.ground.iter();
        ground.flat_map(|ground| ground.under(start, end)).collect()
    }

    /// The chunk that begins at an address.
    pub(crate) fn chunk_at(&self, at: u64) -> Option<Chunk> {
        self.ground.as_ref()?.at(at)
    }

    /// Guards that stand before the next use of what is held.
    pub(crate) fn guards_of(&self, held: Held) -> Vec<G> {
        self.guards.get(&held.block).cloned().unwrap_or_default()
    }

    /// Takes a free block that fits, and leaves what the request does not need.
    #[inline(never)]
    pub(super) fn search_elastic(&mut self, policy: &Policy, grains: u32) -> BlockId {
        self.settle();
        let id = self.find_free(grains);
        if !id.is_some() {
            return id;
        }
        let block = &self.blocks[id];
        let (place, left) = (block.place(), block.grains - grains);
        let end = block.address + u64::from(grains) * GRAIN;
        let by_place = self.is_by_place(Kind::of(u64::from(left) * GRAIN));
        let rest = (left > 0 && !policy.no_split).then(|| self.blocks.claim());
        match rest.flatten() {
            Some(rest) if by_place => {
                self.split_off(id, rest, end);
                self.take_entry_over(place, rest);
            }
            Some(rest) => {
                self.withdraw(id);
                self.split_off(id, rest, end);
                self.return_as(rest, BlockState::Free);
            }
            None => self.withdraw(id),
        }
        let block = &mut self.blocks[id];
        block.kind = Kind::of(block.bytes());
        block.state = BlockState::Allocated;
        self.again = id;
        id
    }

    /// The free block for a request: the small one that fits best, or else the first by place. The blocks of an elastic
    /// segment are listed by their own size, and serve both kinds.
    fn find_free(&self, grains: u32) -> BlockId {
        if grains <= SMALL_GRAINS {
            let id = self.small.best(grains);
            if id.is_some() {
                return id;
            }
        }
        let ground = self.ground.as_ref();
        ground.map_or(BlockId::NONE, |ground| ground.places.first(grains))
    }

    /// Lists small free blocks by place, as large ones are, so that a request gets the first that fits; or by size.
    pub(crate) fn pack(&mut self, packs: bool) {
        self.settle();
        let Some(ground) = &self.ground else { return };
        if ground.packs == packs {
            return;
        }
        let free = self.listed();
        for id in &free {
            self.withdraw(*id);
        }
        if let Some(ground) = &mut self.ground {
            ground.packs = packs;
        }
        for id in free {
            self.return_as(id, BlockState::Free);
        }
        self.again = BlockId::NONE;
    }
}

impl<G> Shelf<G> {
    /// Every free block that a search can find.
    pub(super) fn listed(&self) -> Vec<BlockId> {
        let small = self.small.iter(&self.blocks);
        match &self.ground {
            Some(ground) => small.chain(ground.places.iter()).collect(),
            None => small.chain(self.large.in_order(&self.blocks)).collect(),
        }
    }
}

/// Grains of the largest small request.
const SMALL_GRAINS: u32 = grains_of(SMALL_LIMIT);

impl Block {
    /// The address after the last byte.
    pub(super) const fn end(&self) -> u64 {
        self.address + self.bytes()
    }

    fn is_free(&self) -> bool {
        self.state == BlockState::Free
    }

    /// Whether a request can be placed here, once there is memory.
    const fn can_be_placed_on(&self) -> bool {
        matches!(self.state, BlockState::Free | BlockState::Hole)
    }
}

/// Bytes in grains; less than the segment they are of, which has no more than fit.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a segment has at most 2^32 grains"
)]
const fn grains_of(bytes: u64) -> u32 {
    (bytes / GRAIN) as u32
}
