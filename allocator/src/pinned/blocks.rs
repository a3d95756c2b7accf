//! The segments and blocks of pinned memory, and the users of each block.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::ptr::{self, NonNull};

use cachette_hal::Device;

use super::memory::{PAGE, PinnedMemory};
use super::uses::PinnedUser;
use crate::blocks::{BlockId, BlockState, HeapBlocks, ReuseGuard, Segment, SegmentId};
use crate::error::PointerProblem;
use crate::heap_policy::HeapPolicy;
use crate::label::Label;
use crate::size::{SMALL_LIMIT, SMALL_SEGMENT, UNIT, kind_of, whole_units};
use crate::stats::Stat;

/// The segments and blocks of pinned memory, under one lock.
///
/// A block with users has the flag `slow_free`, and so has every block that its free returns to the driver.
pub(crate) struct PinnedBlocks<D: Device> {
    heap: HeapBlocks<Infallible>,
    policy: HeapPolicy,
    /// By the address of the first byte. A segment that is being returned to the driver is not listed.
    segments: BTreeMap<u64, PinnedSegment>,
    users: HashMap<BlockId, Vec<PinnedUser<D>>>,
    pub(super) active: Active,
    /// Whether the allocator is dropped, so that a freed block serves no further request.
    closed: bool,
}

/// A range of pinned memory that blocks tile.
#[derive(Clone, Copy)]
pub(super) struct PinnedSegment {
    id: SegmentId,
    pub(super) memory: PinnedMemory,
    pub(super) bytes: u64,
    /// Whether it is kept after its last block is free.
    cached: bool,
}

/// An allocated block, and its first byte.
pub(super) type PinnedBlock = (BlockId, NonNull<u8>);

/// Counts of blocks and of their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockCount {
    blocks: u64,
    bytes: u64,
}

impl BlockCount {
    #[inline(always)]
    const fn add(&mut self, bytes: u64) {
        self.blocks += 1;
        self.bytes += bytes;
    }
}

/// The figures of the blocks in use. Those of a hit and its free are two sums each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Active {
    allocated: BlockCount,
    freed: BlockCount,
    /// The highest difference of both.
    peak: BlockCount,
    /// Both at the last reset of totals.
    reset: (BlockCount, BlockCount),
}

impl Active {
    fn note_peak(&mut self) {
        self.peak.blocks = self.peak.blocks.max(self.allocated.blocks - self.freed.blocks);
        self.peak.bytes = self.peak.bytes.max(self.allocated.bytes - self.freed.bytes);
    }

    /// The figures of the blocks, and of their bytes.
    pub(super) fn stats(&self) -> [Stat; 2] {
        let stat = |of: fn(&BlockCount) -> u64| Stat {
            current: of(&self.allocated) - of(&self.freed),
            peak: of(&self.peak),
            allocated: of(&self.allocated) - of(&self.reset.0),
            freed: of(&self.freed) - of(&self.reset.1),
        };
        [stat(|count| count.blocks), stat(|count| count.bytes)]
    }
}

/// Free pinned memory has no guards: a block is free only after its uses.
impl ReuseGuard for Infallible {
    fn covers(&self, _: &Self) -> bool {
        match *self {}
    }
}

impl<D: Device> Default for PinnedBlocks<D> {
    fn default() -> Self {
        Self {
            heap: HeapBlocks::default(),
            policy: HeapPolicy::exact(),
            segments: BTreeMap::new(),
            users: HashMap::new(),
            active: Active::default(),
            closed: false,
        }
    }
}

/// Returns the size of the block for a request. Large blocks are whole pages, so each begins at a page.
#[inline(always)]
pub(super) const fn rounded(bytes: u64) -> u64 {
    if bytes <= SMALL_LIMIT { whole_units(bytes) * UNIT } else { bytes.next_multiple_of(PAGE as u64) }
}

/// Returns the size of a new segment for a block of `rounded` bytes. A small one has as many such blocks as 2 MiB.
pub(super) const fn segment_bytes(rounded: u64, cached: bool) -> u64 {
    let blocks = if cached && rounded <= SMALL_LIMIT { SMALL_SEGMENT / rounded } else { 1 };
    (rounded * blocks).next_multiple_of(PAGE as u64)
}

/// The pointer to the first byte of a block, from the address that its segment exposed.
#[inline(always)]
fn first_byte(address: u64) -> Option<NonNull<u8>> {
    NonNull::new(ptr::with_exposed_provenance_mut(usize::try_from(address).ok()?))
}

impl<D: Device> PinnedBlocks<D> {
    /// Allocates the last-freed block, if a search would find it and it fits exactly.
    ///
    /// No figure rises above its value before the free, so no peak is exceeded.
    #[inline(always)]
    pub(super) fn allocate_again(&mut self, bytes: u64, label: Label) -> Option<PinnedBlock> {
        let id = self.heap.last_freed;
        let block = self.heap.blocks.get_mut(id)?;
        let fits = u64::from(block.units) == bytes.wrapping_add(UNIT - 1) / UNIT;
        if id != self.heap.last_found || !fits || label.is_raw() && !block.indexed {
            return None;
        }
        self.heap.last_freed = BlockId::NONE;
        block.state = BlockState::Allocated;
        block.label = label;
        self.active.allocated.add(block.bytes());
        Some((id, first_byte(block.address)?))
    }

    /// Allocates the best fit, if a free block fits.
    pub(super) fn allocate(&mut self, bytes: u64, label: Label) -> Option<PinnedBlock> {
        let id = self.heap.allocate(&self.policy, rounded(bytes)).get()?;
        self.begin_use(id, label)
    }

    fn begin_use(&mut self, id: BlockId, label: Label) -> Option<PinnedBlock> {
        let block = &mut self.heap.blocks[id];
        block.label = Label::OWNED;
        let (first, bytes) = (first_byte(block.address)?, block.bytes());
        self.active.allocated.add(bytes);
        self.active.note_peak();
        if label.is_raw() {
            self.heap.make_raw(id, label);
        }
        Some((id, first))
    }

    /// Frees a block on the fast path. Returns `false` if the free takes the slow path; then nothing has changed.
    #[inline(always)]
    pub(super) fn try_free(&mut self, id: BlockId) -> bool {
        let Some(block) = self.heap.blocks.get_mut(id) else { return false };
        let fast_path = !block.slow_free;
        if fast_path {
            self.active.freed.add(block.bytes());
            self.heap.free(id);
        }
        fast_path
    }

    /// Makes a block pending. Returns its users, and whether the allocator is dropped.
    pub(super) fn suspend(&mut self, id: BlockId) -> (Vec<PinnedUser<D>>, bool) {
        self.heap.blocks[id].state = BlockState::Pending;
        (self.users.remove(&id).unwrap_or_default(), self.closed)
    }

    /// Frees a pending block. Returns its segment if that returns to the driver now.
    pub(super) fn free_pending(&mut self, id: BlockId) -> Option<SegmentId> {
        let block = &mut self.heap.blocks[id];
        block.slow_free = false;
        let segment = block.segment;
        let base = self.heap.segment_of(id)?.base;
        self.try_free(id);
        self.segments.get(&base).is_some_and(|segment| !segment.cached).then_some(segment)
    }

    /// Adds a segment, and allocates its first bytes. Returns `None` if the tables are full.
    pub(super) fn add(
        &mut self,
        memory: PinnedMemory,
        segment_bytes: u64,
        (bytes, label): (u64, Label),
        cached: bool,
    ) -> Option<PinnedBlock> {
        let (base, rounded) = (memory.expose(), rounded(bytes));
        let id = self.heap.add_segment(base, segment_bytes, kind_of(rounded), 0)?;
        self.segments.insert(base, PinnedSegment { id, memory, bytes: segment_bytes, cached });
        // The rest would serve others, which keep the segment.
        self.policy.no_split = !cached;
        let block = self.heap.allocate_from_segment(&self.policy, id, rounded)?;
        self.policy.no_split = false;
        self.heap.blocks[block].slow_free = !cached;
        self.begin_use(block, label)
    }

    /// The segments without a block in use, oldest first.
    pub(super) fn idle_segments(&mut self) -> Vec<SegmentId> {
        self.heap.idle_segments().into_iter().map(|idle| idle.id).collect()
    }

    /// Removes a segment from the lists, if it is idle and not of the reserve segment.
    pub(super) fn begin_leaving(&mut self, id: SegmentId) -> Option<PinnedSegment> {
        let base = self.heap.segments.get(id)?.base;
        if self.segments.get(&base)?.memory.is_of_reserve() {
            return None;
        }
        self.heap.begin_leaving(id)?;
        self.segments.remove(&base)
    }

    /// Removes a segment that is `gone`, or makes it available again.
    pub(super) fn end_leaving(&mut self, segment: PinnedSegment, gone: bool) {
        if gone {
            self.heap.leave(segment.id);
        } else {
            self.heap.stay(segment.id);
            self.segments.insert(segment.memory.expose(), segment);
        }
    }

    /// Records a use of an allocated block. A block that was freed meanwhile, by its address, stays as it is.
    pub(super) fn record_use(&mut self, id: BlockId, user: PinnedUser<D>) {
        if self.heap.blocks[id].state != BlockState::Allocated {
            return;
        }
        let users = self.users.entry(id).or_default();
        if !users.iter().any(|known| known.is(&user)) {
            users.push(user);
        }
        self.heap.blocks[id].slow_free = true;
    }

    pub(super) fn make_raw(&mut self, id: BlockId) {
        self.heap.make_raw(id, Label::NONE);
    }

    /// Returns the block in use that begins at `address`. An owned one only if `owned` is set.
    pub(super) fn find(&self, address: u64, owned: bool) -> Result<BlockId, PointerProblem> {
        let (_, PinnedSegment { id: segment, .. }) =
            self.segments.range(..=address).next_back().ok_or(PointerProblem::Foreign)?;
        let begins_here = self.heap.find(*segment, address).map(|id| (id, &self.heap.blocks[id]));
        let around = || self.heap.blocks_of(self.heap.segments.get(*segment)?).find(|(_, block)| address < block.end());
        let (id, block) = begins_here.or_else(around).ok_or(PointerProblem::Foreign)?;
        match block.state {
            BlockState::Allocated if block.address != address => {
                Err(PointerProblem::Interior { start: block.address, offset: address - block.address })
            }
            BlockState::Allocated if owned || block.label.is_raw() => Ok(id),
            BlockState::Allocated => Err(PointerProblem::Owned),
            BlockState::Pending => Err(PointerProblem::FreedTwice),
            _ => Err(PointerProblem::Free),
        }
    }

    /// Records that the allocator is dropped: every free takes the slow path. Returns the number of owned blocks.
    pub(super) fn close(&mut self) -> usize {
        self.closed = true;
        let blocks = &mut self.heap.blocks.slots;
        let allocated = blocks.iter_mut().filter(|block| block.state == BlockState::Allocated);
        let owned = allocated.map(|block| {
            block.slow_free = true;
            usize::from(!block.label.is_raw())
        });
        owned.sum()
    }

    /// Sets the peaks to the current values.
    pub(super) fn reset_peaks(&mut self) {
        // The next hit raises the current values, and only a search looks at the peaks.
        self.heap.coalesce();
        self.active.peak = BlockCount::default();
        self.active.note_peak();
    }

    pub(super) fn reset_totals(&mut self) {
        self.active.reset = (self.active.allocated, self.active.freed);
    }

    pub(super) fn uses_reserve(&mut self) -> bool {
        self.heap.coalesce();
        let of_reserve = self.segments.values().filter(|segment| segment.memory.is_of_reserve());
        let firsts = of_reserve.filter_map(|segment| Some(self.heap.segments.get(segment.id)?.first));
        firsts.map(|first| &self.heap.blocks[first]).any(|block| !(block.is_free() && block.is_whole()))
    }

    /// Checks every invariant. The error names the violated one.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.heap.check()?;
        let stays = |segment: &&Segment| self.heap.blocks[segment.first].state != BlockState::Leaving;
        let segments = self.heap.segments.iter().map(|(_, segment)| segment).filter(stays).count();
        if segments != self.segments.len() {
            return Err(format!("{segments} pinned segments are held, and {} are listed", self.segments.len()));
        }
        let active = self.heap.iter().filter(|(_, block)| block.is_in_use()).map(|(_, block)| block.bytes());
        let (requests, bytes) = active.fold((0, 0), |(requests, bytes), more| (requests + 1, bytes + more));
        let [counted_requests, counted_bytes] = self.active.stats().map(|stat| stat.current);
        let counted = (counted_requests, counted_bytes);
        if (requests, bytes) != counted {
            return Err(format!("{requests} pinned blocks of {bytes} bytes are in use, and {counted:?} are counted"));
        }
        let used = |id: &BlockId| self.heap.blocks.get(*id).is_some_and(|block| block.is_in_use() && block.slow_free);
        if self.users.keys().all(used) { Ok(()) } else { Err("a free pinned block has users".to_owned()) }
    }
}
