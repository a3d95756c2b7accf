//! Snapshots for the program to read.

use cachette_snapshot::{Block, BlockState, Event, Frame, PoolId, Segment, Snapshot, StackId, Trace, TraceAction};

use crate::scratch::Scratch;

pub(crate) const MIB: u64 = 1 << 20;

/// A run that keeps 4 MiB from before it was recorded, then allocates 10, 20 and 30 MiB, each in its own segment, and
/// fails to allocate 1 GiB. At the end it holds 64 MiB, of which 4 and 30 are in use.
pub(crate) fn run_of_three() -> Snapshot {
    let mut snapshot = Snapshot { pools: vec![PoolId::default(), PoolId(0, 3)], ..Snapshot::default() };
    let frame = |name: &str, line| Frame { name: name.to_owned(), file: "train.py".to_owned(), line };
    let stack = snapshot.stacks.add([frame("step", 10), frame("main", 3)]);
    snapshot.traces.push(Trace { device: 0, events: events(stack) });
    let segments = [(0, 4, true), (100, 10, false), (200, 20, false), (300, 30, true)];
    snapshot.segments = (0..)
        .zip(segments)
        .map(|(order, (place, size, used))| segment(order, place * MIB, size * MIB, used, stack))
        .collect();
    snapshot.segments[0].pool = 1;
    snapshot
}

fn events(stack: StackId) -> Vec<Event> {
    let mut time_us = 1_700_000_000_000_000;
    let mut events = Vec::new();
    let mut happened = |action, address, bytes| {
        time_us += 500_000;
        events.push(Event { address, bytes, time_us, stack, action, ..Event::default() });
    };
    for place in 1..=3 {
        let (address, bytes) = (place * 100 * MIB, place * 10 * MIB);
        happened(TraceAction::SegmentAlloc, address, bytes);
        happened(TraceAction::Alloc, address, bytes);
        if place < 3 {
            happened(TraceAction::FreeRequested, address, bytes);
            happened(TraceAction::FreeCompleted, address, bytes);
        }
    }
    happened(TraceAction::OutOfMemory, 5 * MIB, 1 << 30);
    events
}

fn segment(order: u64, address: u64, bytes: u64, used: bool, stack: StackId) -> Segment {
    let (state, requested) = if used { (BlockState::Allocated, bytes) } else { (BlockState::Free, 0) };
    let block = Block { address, bytes, requested, state, stack, ..Block::default() };
    Segment { address, bytes, order, blocks: vec![block], ..Segment::default() }
}

/// The snapshot as a pickle in a file.
pub(crate) fn pickled(snapshot: &Snapshot) -> Scratch {
    let mut bytes = Vec::new();
    let written = snapshot.write_pickle(&mut bytes);
    written.expect("memory takes everything");
    Scratch::holding(bytes, ".pickle")
}
