//! The figures of a snapshot.

use std::collections::{BTreeMap, HashMap};

use cachette_snapshot::{
    Block, BlockState, DeviceParts, Event, Frame, OutsideMemory, PoolId, Segment, Snapshot, StackId, TraceAction,
};
use serde::Serialize;

/// Bytes in segments, by their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Memory {
    pub(super) segments: usize,
    pub(super) elastic: usize,
    pub(super) reserved: u64,
    /// Bytes of segments that sleep, which count nowhere else.
    pub(super) asleep: u64,
    pub(super) allocated: u64,
    pub(super) pending: u64,
    pub(super) free: u64,
    /// Requested bytes of the blocks that are not free.
    pub(super) requested: u64,
    pub(super) largest_free: u64,
}

impl Memory {
    fn add(&mut self, segment: &Segment) {
        if segment.asleep {
            self.asleep = self.asleep.saturating_add(segment.bytes);
            return;
        }
        let largest = segment.blocks.iter().filter(|block| is_free(block)).map(|block| block.bytes).max().unwrap_or(0);
        self.segments += 1;
        self.elastic += usize::from(segment.elastic);
        // A file may contain any number, so the sums must not overflow.
        for (sum, bytes) in [
            (&mut self.reserved, segment.bytes),
            (&mut self.allocated, segment.bytes_in(BlockState::Allocated)),
            (&mut self.pending, segment.bytes_in(BlockState::Pending)),
            (&mut self.free, segment.bytes_in(BlockState::Free)),
            (&mut self.requested, segment.requested()),
        ] {
            *sum = sum.saturating_add(bytes);
        }
        self.largest_free = self.largest_free.max(largest);
    }

    /// The fraction of the free memory that is not in its largest block; `None` if nothing is free.
    pub(super) fn fragmentation(&self) -> Option<f64> {
        (self.free > 0).then(|| 1.0 - share(self.largest_free, self.free))
    }

    /// The fraction of the memory in use that rounding adds; `None` if nothing is in use.
    pub(super) fn rounding(&self) -> Option<f64> {
        let used = self.allocated.saturating_add(self.pending);
        (used > 0).then(|| 1.0 - share(self.requested.min(used), used))
    }
}

const fn is_free(block: &Block) -> bool {
    matches!(block.state, BlockState::Free)
}

/// One number as a fraction of another.
#[expect(clippy::cast_precision_loss, reason = "a share needs far fewer digits than are kept")]
pub(super) fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// The memory of one allocation site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) stack: StackId,
    pub(super) bytes: u64,
    pub(super) blocks: usize,
}

/// The summary of one device.
#[derive(Debug)]
pub(super) struct Summary<'a> {
    pub(super) device: u32,
    pub(super) memory: Memory,
    /// By pool; empty if there is only the default one.
    pub(super) pools: BTreeMap<PoolId, Memory>,
    /// The allocation sites, largest first.
    pub(super) holders: Vec<Holder>,
    pub(super) events: Vec<&'a Event>,
    /// What was taken past the allocators.
    pub(super) outside: OutsideMemory,
}

impl<'a> Summary<'a> {
    /// One for every device of the snapshot, in order.
    pub(super) fn all(snapshot: &'a Snapshot) -> Vec<Self> {
        snapshot.by_device().into_iter().map(|(device, parts)| Self::of(snapshot, device, parts)).collect()
    }

    fn of(snapshot: &'a Snapshot, device: u32, parts: DeviceParts<'a>) -> Self {
        let mut memory = Memory::default();
        let mut pools: BTreeMap<PoolId, Memory> = BTreeMap::new();
        let mut stacks: BTreeMap<StackId, (u64, usize)> = BTreeMap::new();
        for segment in parts.segments {
            memory.add(segment);
            let pool = snapshot.pools.get(segment.pool as usize);
            pools.entry(pool.copied().unwrap_or_default()).or_default().add(segment);
            for block in segment.blocks.iter().filter(|block| !is_free(block) && !segment.asleep) {
                let (bytes, blocks) = stacks.entry(block.stack).or_default();
                *bytes = bytes.saturating_add(block.bytes);
                *blocks += 1;
            }
        }
        let outside = parts.outside;
        let events = parts.traces.into_iter().flat_map(|trace| &trace.events).collect();
        if pools.keys().eq([&PoolId::default()]) {
            pools.clear();
        }
        Self { device, memory, pools, holders: holders(snapshot, stacks), events, outside }
    }

    /// The number of events by action, without zeros.
    pub(super) fn actions(&self) -> impl Iterator<Item = (TraceAction, usize)> {
        let mut counts = [0; TraceAction::ALL.len()];
        for event in &self.events {
            counts[event.action as usize] += 1;
        }
        TraceAction::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0)
    }

    /// The first and the last time of the history.
    pub(super) fn span(&self) -> Option<(i64, i64)> {
        let times = || self.events.iter().map(|event| event.time_us);
        times().min().zip(times().max())
    }
}

/// The frame that stands for a stack, and the one that called it.
pub(super) fn place(snapshot: &Snapshot, stack: StackId) -> String {
    let frames: Vec<&Frame> = snapshot.stacks.frames_of(stack).collect();
    let Some(first) = Frame::site(&frames) else { return "no stack recorded".to_owned() };
    let shown: Vec<String> =
        frames[first..].iter().take(2).map(|frame| frame.to_string().escape_debug().to_string()).collect();
    shown.join(" < ")
}

/// Groups the stacks by the line of Python that stands for them, or else by their text.
fn holders(snapshot: &Snapshot, stacks: BTreeMap<StackId, (u64, usize)>) -> Vec<Holder> {
    let key = |stack| {
        let frames: Vec<&Frame> = snapshot.stacks.frames_of(stack).collect();
        let python = frames.into_iter().find(|frame| frame.is_python());
        python.map_or_else(|| (None, place(snapshot, stack)), |frame| (Some(&frame.file), frame.to_string()))
    };
    let mut holders: HashMap<_, Holder> = HashMap::new();
    for (stack, (bytes, blocks)) in stacks {
        let holder = holders.entry(key(stack)).or_insert(Holder { stack, bytes: 0, blocks: 0 });
        holder.bytes = holder.bytes.saturating_add(bytes);
        holder.blocks += blocks;
    }
    let mut holders: Vec<Holder> = holders.into_values().collect();
    holders.sort_by_key(|holder| (std::cmp::Reverse(holder.bytes), holder.stack));
    holders
}

pub(super) const fn plural(count: usize, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}
