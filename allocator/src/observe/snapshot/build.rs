//! Converts copies of heaps to the segments, pools and stacks of a snapshot.

use std::num::NonZeroU32;
use std::sync::Arc;

use cachette_snapshot::{Block, BlockState, OutsideMemory, PoolId, Segment, Setting, Snapshot, StackId, TextId, Trace};

use crate::blocks::{self, BlockId};
use crate::config::Config;
use crate::heap::HeapCopy;
use crate::observe::history::{self, PoolNumbers, RawStack, Recording, Scale, StackSource};
use crate::pool;
use crate::stats::OutsideStats;

/// An unfinished snapshot, whose stacks still have the numbers of their source.
pub(super) struct SnapshotBuilder {
    pub(super) device: u32,
    /// The list of the recording, if there is one, so that its events keep their numbers.
    pub(super) pools: PoolNumbers,
    pub(super) snapshot: Snapshot,
}

impl SnapshotBuilder {
    pub(super) fn add_heap(&mut self, heap: &HeapCopy) {
        let pool = self.pools.number_of(heap.pool);
        for segment in &heap.blocks.segments {
            let mut blocks = Vec::new();
            let mut from = segment.base;
            for (id, block) in heap.blocks.blocks_of(segment) {
                if let Some(state) = state_of(block) {
                    blocks.push(self.block(heap, id, block, state));
                    continue;
                }
                self.add_segment(heap, segment, pool, from, std::mem::take(&mut blocks));
                from = block.address + block.bytes();
            }
            self.add_segment(heap, segment, pool, from, blocks);
        }
    }

    /// Adds a segment, or a completely mapped part of one. Does nothing without blocks.
    fn add_segment(&mut self, heap: &HeapCopy, segment: &blocks::Segment, pool: u32, address: u64, blocks: Vec<Block>) {
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
            kind: heap.blocks.kind_of(segment, address, address + bytes),
            pool,
            elastic: heap.blocks.elastic,
            asleep: heap.asleep,
            order: segment.order,
            stack: StackId(stack.copied().unwrap_or(0)),
            blocks,
        });
    }

    fn block(&mut self, heap: &HeapCopy, id: BlockId, block: &blocks::Block, state: BlockState) -> Block {
        let is_free = state == BlockState::Free;
        let label = if is_free { None } else { block.label.name() };
        Block {
            address: block.address,
            bytes: block.bytes(),
            // The rest of a split block may still have the requested size of another block.
            requested: if is_free && block.requested > block.bytes() { 0 } else { block.requested },
            state,
            stack: StackId(if is_free { 0 } else { heap.stacks.of(id) }),
            label: label.map_or(TextId::NONE, |name| self.snapshot.texts.add(name)),
        }
    }

    /// Adds what was taken past the allocator, if that is counted.
    pub(super) fn add_outside(&mut self, OutsideStats { device, managed, host, .. }: &OutsideStats) {
        let [bytes, managed, host] = [device, managed, host].map(|stat| stat.current);
        let outside = OutsideMemory { device: self.device, bytes, managed, host };
        self.snapshot.outside.extend((bytes + managed + host > 0).then_some(outside));
    }

    pub(super) fn used_bytes(&self) -> u64 {
        let blocks = self.snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        blocks.filter(|block| block.state != BlockState::Free).map(|block| block.bytes).sum()
    }

    /// Adds the events and annotations; only those of the pool `only`, if given.
    pub(super) fn add_trace(&mut self, recording: &Recording, only: Option<pool::PoolId>) {
        let scale = Scale::now();
        let only = only.map(|only| self.pools.number_of(only));
        let all = recording.events(&scale);
        let mut events = Vec::with_capacity(all.len());
        events.extend(all.flatten().filter(|event| only.is_none_or(|only| event.pool == only)));
        let known = history::texts();
        // By the process-wide number; the snapshot numbers a text at its first use.
        let mut numbers = vec![TextId::NONE; known.all().len() + 1];
        let texts = events.iter_mut().flat_map(|event| [&mut event.metadata, &mut event.context]);
        for text in texts.filter(|text| **text != TextId::NONE) {
            let number = &mut numbers[text.0 as usize];
            if *number == TextId::NONE {
                *number = self.snapshot.texts.add(known.get(*text));
            }
            *text = *number;
        }
        drop(known);
        self.snapshot.traces.push(Trace { device: self.device, events });
        self.snapshot.annotations = history::annotations(&scale);
    }

    /// Sorts the segments, and resolves every stack.
    pub(super) fn end(mut self, settings: Vec<(String, Setting)>, source: Option<Arc<dyn StackSource>>) -> Snapshot {
        self.snapshot.settings = settings;
        self.snapshot.pools = self.pools.all().into_iter().map(|id| PoolId(id.capture, id.user)).collect();
        self.snapshot.segments.sort_by_key(|segment| segment.address);
        if let Some(source) = source {
            self.resolve_stacks(&*source);
        }
        self.snapshot
    }

    /// Replaces the stack numbers of the source by those of the snapshot.
    fn resolve_stacks(&mut self, source: &dyn StackSource) {
        // Whether a number is used; then the stack and the forward stack in the snapshot.
        let mut table: Vec<(bool, StackId, StackId)> = Vec::new();
        self.each_stack(|stack| {
            let index = stack.0 as usize;
            if index >= table.len() {
                table.resize(index + 1, Default::default());
            }
            table[index].0 = true;
        });
        let used = (0_u32..).zip(&table).filter(|(_, (used, ..))| *used);
        let raw: Vec<RawStack> = used.filter_map(|(number, _)| NonZeroU32::new(number).map(RawStack)).collect();
        for (raw, resolved) in raw.iter().zip(source.resolve(&raw)) {
            let (_, stack, forward) = &mut table[raw.0.get() as usize];
            *stack = self.snapshot.stacks.add(resolved.frames);
            *forward = self.snapshot.stacks.add(resolved.forward);
        }
        for event in self.snapshot.traces.iter_mut().flat_map(|trace| &mut trace.events) {
            event.forward_stack = table[event.stack.0 as usize].2;
        }
        self.each_stack(|stack| *stack = table[stack.0 as usize].1);
    }

    pub(super) fn each_stack(&mut self, mut each: impl FnMut(&mut StackId)) {
        for segment in &mut self.snapshot.segments {
            each(&mut segment.stack);
            segment.blocks.iter_mut().for_each(|block| each(&mut block.stack));
        }
        for event in self.snapshot.traces.iter_mut().flat_map(|trace| &mut trace.events) {
            each(&mut event.stack);
        }
    }
}

/// Returns the state of a block; `None` if it has no memory, or if the memory is being released.
const fn state_of(block: &blocks::Block) -> Option<BlockState> {
    match block.state {
        blocks::BlockState::Allocated => Some(BlockState::Allocated),
        blocks::BlockState::Pending => Some(BlockState::Pending),
        blocks::BlockState::Free | blocks::BlockState::LastFreed | blocks::BlockState::Leaving => {
            Some(BlockState::Free)
        }
        blocks::BlockState::Vacant
        | blocks::BlockState::Unmapped
        | blocks::BlockState::Reserved
        | blocks::BlockState::PendingUnmap => None,
    }
}

/// Returns the settings: first the keys of other snapshot readers, then those of this allocator only.
pub(super) fn settings(config: &Config) -> Vec<(String, Setting)> {
    let switch = Setting::Switch;
    let settings = [
        ("PYTORCH_CUDA_ALLOC_CONF", Setting::Text(config.to_string())),
        ("max_split_size", bytes_or(config.max_split_bytes(), Setting::Integer(-1))),
        ("garbage_collection_threshold", Setting::Number(config.gc_threshold().unwrap_or(0.0))),
        ("expandable_segments", switch(config.expandable_segments())),
        ("pinned_num_register_threads", Setting::Integer(config.pinned_register_threads().into())),
        ("release_lock_on_cudamalloc", switch(config.release_lock_on_malloc())),
        ("pinned_use_cuda_host_register", switch(config.pinned_use_host_register())),
        ("graph_capture_record_stream_reuse", switch(config.graph_capture_record_stream_reuse())),
        ("roundup_power2_divisions", divisions(config)),
        // The keys of this allocator only.
        ("large_segment_size", bytes_or(Some(config.large_segment_bytes()), Setting::None)),
        ("memory_limit", bytes_or(config.memory_limit(), Setting::None)),
        ("per_process_memory_fraction", config.memory_fraction().map_or(Setting::None, Setting::Number)),
        ("elastic_setting", Setting::Text(config.elastic_setting().to_string())),
        ("gpu_direct_rdma", switch(config.gpu_direct_rdma())),
        ("never_block", switch(config.never_block())),
        ("caching", switch(config.caching())),
    ];
    settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn bytes_or(bytes: Option<u64>, none: Setting) -> Setting {
    bytes.map_or(none, |bytes| Setting::Integer(i64::try_from(bytes).unwrap_or(i64::MAX)))
}

/// The divisions of every interval, by its start in MiB.
fn divisions(config: &Config) -> Setting {
    let intervals = (0_u32..).zip(config.roundup_divisions());
    let entry = |(nth, count): (u32, &u32)| ((1_u64 << nth).to_string(), Setting::Integer((*count).into()));
    Setting::Table(intervals.map(entry).collect())
}
