//! From copies of heaps to the segments, pools and stacks of a snapshot.

use std::num::NonZeroU32;
use std::sync::Arc;

use cachette_snapshot::{Block, BlockState, PoolId, Segment, SegmentKind, Setting, Snapshot, StackId};

use crate::blocks::{self, BlockId, SegmentCopy};
use crate::heap::HeapCopy;
use crate::observe::history::{self, RawStack, Recording, Scale, StackSource};
use crate::{pool, size};

/// A snapshot that is being made; stacks are still known by the numbers of their source.
#[derive(Debug)]
pub(super) struct SnapshotBuilder<'a> {
    device: u32,
    recording: Option<&'a Arc<Recording>>,
    source: Option<Arc<dyn StackSource>>,
    pub(super) snapshot: Snapshot,
}

impl<'a> SnapshotBuilder<'a> {
    pub(super) fn new(
        device: u32,
        recording: Option<&'a Arc<Recording>>,
        source: Option<Arc<dyn StackSource>>,
    ) -> Self {
        Self {
            device,
            recording,
            source,
            snapshot: Snapshot { pools: vec![pool_of(pool::PoolId::DEFAULT)], ..Snapshot::default() },
        }
    }

    pub(super) const fn device(&self) -> u32 {
        self.device
    }

    /// Adds what a heap holds.
    pub(super) fn add_heap(&mut self, heap: &HeapCopy) {
        let pool = self.number_of(heap.pool);
        for segment in &heap.blocks.segments {
            let mut blocks = Vec::new();
            let mut from = segment.base;
            for (id, block) in heap.blocks.blocks_of(segment) {
                if let Some(state) = state_of(block) {
                    blocks.push(self::block(heap, id, block, state));
                    continue;
                }
                self.add_segment(heap, segment, pool, from, std::mem::take(&mut blocks));
                from = block.address + block.bytes();
            }
            self.add_segment(heap, segment, pool, from, blocks);
        }
    }

    /// Adds a segment, or a part of one that has memory throughout; nothing for no blocks.
    fn add_segment(&mut self, heap: &HeapCopy, segment: &SegmentCopy, pool: u32, address: u64, blocks: Vec<Block>) {
        let bytes: u64 = blocks.iter().map(|block| block.bytes).sum();
        if bytes == 0 {
            return;
        }
        let stack = heap.stacks.memory.get(&address);
        self.snapshot.segments.push(Segment {
            device: self.device,
            address,
            bytes,
            stream: heap.stream.raw() as u64,
            kind: match heap.blocks.kind_of(segment, address, address + bytes) {
                size::SegmentKind::Small => SegmentKind::Small,
                size::SegmentKind::Large => SegmentKind::Large,
            },
            pool,
            elastic: heap.blocks.elastic,
            order: segment.order,
            stack: StackId(stack.copied().unwrap_or(0)),
            blocks,
        });
    }

    /// The place of a pool in the list: that of the recording, so that events need no other numbers.
    fn number_of(&mut self, pool: pool::PoolId) -> u32 {
        if let Some(recording) = self.recording {
            return recording.number_of(pool);
        }
        let (pool, pools) = (pool_of(pool), &mut self.snapshot.pools);
        let place = pools.iter().position(|known| *known == pool);
        let place = place.unwrap_or_else(|| {
            pools.push(pool);
            pools.len() - 1
        });
        u32::try_from(place).unwrap_or(0)
    }

    /// Adds what the program said it was doing.
    pub(super) fn add_annotations(&mut self, scale: &Scale) {
        self.snapshot.annotations = history::annotations(scale);
    }

    /// Puts the segments in order, and gives every stack its words.
    pub(super) fn end(mut self, settings: Vec<(String, Setting)>) -> Snapshot {
        self.snapshot.settings = settings;
        if let Some(recording) = self.recording {
            let pools = recording.pools.lock();
            self.snapshot.pools = pools.iter().copied().map(pool_of).collect();
        }
        self.snapshot.segments.sort_by_key(|segment| segment.address);
        self.resolve_stacks();
        self.snapshot
    }

    /// Exchanges the numbers of the source of stacks for those of the snapshot; without a source there are none.
    fn resolve_stacks(&mut self) {
        let Some(source) = self.source.take() else { return };
        let mut table: Vec<Numbers> = Vec::new();
        self.each_stack(|stack, _| {
            let index = stack.0 as usize;
            if index >= table.len() {
                table.resize(index + 1, Numbers::default());
            }
            table[index].used = index > 0;
        });
        let numbers = || (0_u32..).zip(&table).filter(|(_, numbers)| numbers.used);
        let raw: Vec<RawStack> = numbers().filter_map(|(number, _)| NonZeroU32::new(number).map(RawStack)).collect();
        let resolved = source.resolve(&raw);
        for (raw, resolved) in raw.iter().zip(resolved) {
            let numbers = &mut table[raw.0.get() as usize];
            numbers.stack = self.snapshot.stacks.add(resolved.frames);
            numbers.forward = self.snapshot.stacks.add(resolved.forward);
        }
        self.each_stack(|stack, forward| {
            let numbers = table[stack.0 as usize];
            *stack = numbers.stack;
            if let Some(forward) = forward {
                *forward = numbers.forward;
            }
        });
    }

    /// Every stack of the snapshot, and where there is one the place of the forward stack that goes with it.
    fn each_stack(&mut self, mut each: impl FnMut(&mut StackId, Option<&mut StackId>)) {
        for segment in &mut self.snapshot.segments {
            each(&mut segment.stack, None);
            for block in &mut segment.blocks {
                each(&mut block.stack, None);
            }
        }
        for event in self.snapshot.traces.iter_mut().flat_map(|t| &mut t.events) {
            each(&mut event.stack, Some(&mut event.forward_stack));
        }
    }
}

/// What a stack of the source is called in the snapshot.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    used: bool,
    stack: StackId,
    forward: StackId,
}

const fn pool_of(id: pool::PoolId) -> PoolId {
    PoolId(id.capture, id.user)
}

/// What a block was doing; `None` if there is no memory under it, or none that stays.
const fn state_of(block: &blocks::Block) -> Option<BlockState> {
    match block.state {
        blocks::BlockState::Allocated => Some(BlockState::Allocated),
        blocks::BlockState::Pending => Some(BlockState::Pending),
        blocks::BlockState::Free | blocks::BlockState::Recent | blocks::BlockState::Leaving => Some(BlockState::Free),
        blocks::BlockState::Vacant
        | blocks::BlockState::Unmapped
        | blocks::BlockState::Reserved
        | blocks::BlockState::PendingUnmap => None,
    }
}

fn block(heap: &HeapCopy, id: BlockId, block: &blocks::Block, state: BlockState) -> Block {
    let is_free = state == BlockState::Free;
    Block {
        address: block.address,
        bytes: block.bytes(),
        // The rest of a split block may still have what another block was asked for.
        requested: if is_free && block.requested > block.bytes() { 0 } else { block.requested },
        state,
        stack: StackId(if is_free { 0 } else { heap.stacks.of(id) }),
    }
}
