//! Histories are converted to traces.

use cachette_snapshot::{Block, Segment};

use super::*;
use crate::trace::Operation;

const MIB: u64 = 1 << 20;

fn event(action: TraceAction, address: u64, bytes: u64, stream: u64) -> Event {
    Event { address, bytes, stream, action, ..Event::default() }
}

/// A segment at an address that is a multiple of 100 MiB, with one live block of each size and the rest free.
fn segment(device: u32, address: u64, bytes: u64, live: &[u64]) -> Segment {
    let mut place = address;
    let mut blocks = Vec::new();
    let rest = bytes - live.iter().sum::<u64>();
    for (index, &bytes) in live.iter().chain([&rest]).enumerate() {
        let state = if index < live.len() { BlockState::Allocated } else { BlockState::Free };
        let requested = if state == BlockState::Free { 0 } else { bytes - 1 };
        blocks.push(Block { address: place, bytes, requested, state, ..Block::default() });
        place += bytes;
    }
    Segment { device, address, bytes, stream: 9, blocks, ..Segment::default() }
}

fn snapshot(events: Vec<Event>, segments: Vec<Segment>) -> Snapshot {
    Snapshot { segments, traces: vec![cachette_snapshot::Trace { device: 0, events }], ..Snapshot::default() }
}

fn traced(snapshot: &Snapshot) -> Trace {
    trace(snapshot, 0, "by hand".into()).unwrap()
}

fn allocate(slot: u32, stream: u32, bytes: u64) -> Operation {
    Operation::Allocate { slot, stream, bytes }
}

#[test]
fn an_address_may_be_used_again() {
    let snapshot = snapshot(
        vec![
            event(TraceAction::SegmentAlloc, 0, 20 * MIB, 5),
            event(TraceAction::Alloc, 64, 100, 5),
            event(TraceAction::FreeRequested, 64, 100, 5),
            event(TraceAction::FreeCompleted, 64, 100, 5),
            event(TraceAction::Alloc, 64, 200, 7),
        ],
        vec![segment(0, 0, 20 * MIB, &[])],
    );
    let trace = traced(&snapshot);
    assert_eq!(trace.operations, [allocate(0, 0, 100), Operation::Free { slot: 0 }, allocate(0, 1, 200)]);
    assert_eq!((trace.streams, trace.peak_requested), (2, 200));
}

#[test]
fn what_is_older_than_the_history_comes_first() {
    let snapshot = snapshot(
        vec![
            event(TraceAction::Alloc, 3 * MIB, 300, 0),
            // Freed, and never allocated here.
            event(TraceAction::FreeCompleted, 7 * MIB, 700, 4),
            event(TraceAction::Alloc, 7 * MIB, 70, 0),
            // Freed twice: the second time says nothing.
            event(TraceAction::FreeCompleted, 7 * MIB, 70, 0),
            event(TraceAction::FreeCompleted, 7 * MIB, 70, 0),
        ],
        // The first two are live and older; the third was allocated in the history. The other device is another's.
        vec![segment(0, 0, 20 * MIB, &[2 * MIB, MIB, MIB]), segment(1, 100 * MIB, 20 * MIB, &[MIB])],
    );
    let trace = traced(&snapshot);
    let recorded = trace.recorded().unwrap();
    assert_eq!(recorded.earlier, 3);
    assert_eq!(
        trace.operations,
        [
            allocate(0, 0, 2 * MIB - 1),
            allocate(1, 0, MIB - 1),
            allocate(2, 1, 700),
            allocate(3, 2, 300),
            Operation::Free { slot: 2 },
            allocate(2, 2, 70),
            Operation::Free { slot: 2 },
        ]
    );
}

#[test]
fn without_the_end_of_a_free_its_request_counts() {
    let snapshot = snapshot(
        vec![
            event(TraceAction::Alloc, 64, 100, 0),
            event(TraceAction::FreeRequested, 64, 100, 0),
            event(TraceAction::Alloc, 64, 100, 0),
            // Not recorded that it was given back.
            event(TraceAction::Alloc, 64, 100, 0),
        ],
        vec![],
    );
    let operations = traced(&snapshot).operations;
    let frees = operations.iter().filter(|operation| matches!(operation, Operation::Free { .. }));
    assert_eq!((operations.len(), frees.count()), (5, 2));
}

/// The end is known from the segments, and every moment before it from the events.
#[test]
fn what_the_program_held_itself_is_found_backwards() {
    let snapshot = snapshot(
        vec![
            event(TraceAction::Alloc, 64, 100, 0),
            event(TraceAction::SegmentAlloc, 100 * MIB, 30 * MIB, 0),
            event(TraceAction::SegmentMap, 200 * MIB, 2 * MIB, 0),
            event(TraceAction::Alloc, 100 * MIB, 100, 0),
            event(TraceAction::SegmentFree, 100 * MIB, 30 * MIB, 0),
            event(TraceAction::SegmentUnmap, 200 * MIB, 2 * MIB, 0),
        ],
        vec![segment(0, 0, 20 * MIB, &[])],
    );
    let trace = traced(&snapshot);
    let recorded = trace.recorded().unwrap();
    assert_eq!(recorded.peak_reserved, 52 * MIB);
}

#[test]
fn one_device_is_chosen_or_has_to_be() {
    let mut snapshot = snapshot(vec![event(TraceAction::Alloc, 64, 100, 0)], vec![]);
    assert_eq!(choose(&snapshot, None).unwrap(), 0);
    let wrong = choose(&snapshot, Some(3)).unwrap_err().to_string();
    assert_eq!(wrong, "device 3 has no history in the snapshot; these have: 0");
    let mut second = snapshot.traces[0].clone();
    second.device = 2;
    snapshot.traces.push(second);
    assert_eq!(choose(&snapshot, Some(2)).unwrap(), 2);
    let several = choose(&snapshot, None).unwrap_err().to_string();
    assert!(several.contains("devices 0, 2; choose one"), "{several}");
    let none = choose(&Snapshot::default(), None).unwrap_err().to_string();
    assert!(none.contains("_record_memory_history()"), "{none}");
}

#[test]
fn a_history_without_requests_cannot_be_replayed() {
    let snapshot = snapshot(vec![event(TraceAction::Snapshot, 0, 0, 0)], vec![]);
    assert!(trace(&snapshot, 0, String::new()).is_err());
}
