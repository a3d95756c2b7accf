//! Events become steps whichever of them were recorded.

use cachette_snapshot::{Snapshot, Trace};

use super::*;

fn event(action: TraceAction, address: u64, time_us: i64) -> Event {
    Event { address, bytes: 512, time_us, stack: StackId(1), action, ..Event::default() }
}

fn block(address: u64, state: BlockState) -> Block {
    Block { address, bytes: 512, requested: 500, state, stack: StackId(2), label: TextId::NONE }
}

fn snapshot(events: &[(TraceAction, u64)], blocks: &[(u64, BlockState)]) -> Snapshot {
    let events = events.iter().zip(10..).map(|(&(action, address), time)| event(action, address, time));
    let blocks = blocks.iter().map(|&(address, state)| block(address, state)).collect();
    let segment = Segment { bytes: 4096, blocks, ..Segment::default() };
    Snapshot {
        segments: vec![segment],
        traces: vec![Trace { device: 0, events: events.collect() }],
        ..Snapshot::default()
    }
}

fn history_of(snapshot: &Snapshot, device: u32) -> History<'_> {
    History::of(&snapshot.by_device().remove(&device).unwrap_or_default())
}

/// The steps without their times.
fn steps(snapshot: &Snapshot) -> Vec<(Op, usize)> {
    let history = history_of(snapshot, 0);
    history.steps.iter().map(|step| (step.op, step.subject)).collect()
}

use Op::{Begin, Done, End, Grow};
use TraceAction::{Alloc, Annotate, FreeCompleted, FreeRequested, OutOfMemory, SegmentAlloc};

#[test]
fn one_address_serves_many_allocations() {
    let events = [(Alloc, 0), (FreeRequested, 0), (FreeCompleted, 0), (Alloc, 0)];
    let snapshot = snapshot(&events, &[(0, BlockState::Allocated)]);
    assert_eq!(steps(&snapshot), [(Begin, 0), (End, 0), (Done, 0), (Begin, 1)]);
    assert_eq!(history_of(&snapshot, 0).at_the_end(), HashMap::from([(0, 1)]));
}

/// H13: what the allocation said first stays.
#[test]
fn an_annotation_is_the_metadata_of_an_allocation_without_any() {
    let mut snapshot = snapshot(&[(Alloc, 0), (Alloc, 512), (Annotate, 0), (Annotate, 512), (Annotate, 4096)], &[]);
    let events = &mut snapshot.traces[0].events;
    for (event, text) in events.iter_mut().zip([0, 3, 7, 7, 7]) {
        event.metadata = TextId(text);
    }
    let history = history_of(&snapshot, 0);
    let metadata: Vec<_> = history.allocations.iter().map(|allocation| allocation.metadata).collect();
    assert_eq!(metadata, [TextId(7), TextId(3)]);
}

/// H3: the ring has lost the oldest events.
#[test]
fn what_was_made_before_the_first_event_comes_first() {
    let events = [(Alloc, 0), (FreeRequested, 512), (FreeCompleted, 512)];
    let snapshot = snapshot(&events, &[(0, BlockState::Allocated), (1024, BlockState::Allocated)]);
    let history = history_of(&snapshot, 0);
    assert_eq!(history.before, 2);
    assert_eq!(steps(&snapshot), [(Begin, 2), (End, 0), (Done, 0)]);
    assert_eq!(history.allocations[0].stack, StackId::NONE, "the stack of the end is not where it was made");
    assert_eq!((history.allocations[1].stack, history.allocations[1].bytes), (StackId(2), 500));
    assert_eq!(history.at_the_end(), HashMap::from([(0, 2), (1024, 1)]));
}

/// H1: kinds of events can be left out of the history.
#[test]
fn kinds_of_events_that_were_left_out_are_made_up_for() {
    let no_requested = snapshot(&[(Alloc, 0), (FreeCompleted, 0)], &[]);
    assert_eq!(steps(&no_requested), [(Begin, 0), (End, 0), (Done, 0)]);

    let no_completed = snapshot(&[(Alloc, 0), (FreeRequested, 0), (Alloc, 0)], &[]);
    assert_eq!(steps(&no_completed), [(Begin, 0), (End, 0), (Done, 0), (Begin, 1)]);

    let no_free = snapshot(&[(Alloc, 0), (Alloc, 0)], &[]);
    assert_eq!(steps(&no_free), [(Begin, 0), (End, 0), (Done, 0), (Begin, 1)]);

    let no_alloc = snapshot(&[(FreeCompleted, 0), (FreeCompleted, 0)], &[(0, BlockState::Allocated)]);
    assert_eq!(steps(&no_alloc), [(End, 0), (Done, 0), (Begin, 1)]);
}

#[test]
fn what_other_streams_still_use_is_given_back_but_not_free() {
    let in_the_history = snapshot(&[(Alloc, 0), (FreeRequested, 0)], &[(0, BlockState::Pending)]);
    assert_eq!(steps(&in_the_history), [(Begin, 0), (End, 0)]);
    let before_it = snapshot(&[], &[(0, BlockState::Pending)]);
    assert_eq!(steps(&before_it), [(End, 0)]);
    assert_eq!(history_of(&before_it, 0).at_the_end(), HashMap::from([(0, 0)]));
}

#[test]
fn other_events_are_kept_beside() {
    let snapshot = snapshot(&[(SegmentAlloc, 0), (Alloc, 0), (OutOfMemory, 77)], &[]);
    assert_eq!(steps(&snapshot), [(Grow, 0), (Begin, 0), (Op::OutOfMemory, 1)]);
    assert_eq!(history_of(&snapshot, 0).others[1].address, 77);
}

#[test]
fn times_never_go_back() {
    let mut snapshot = snapshot(&[(Alloc, 0), (FreeRequested, 0)], &[]);
    snapshot.traces[0].events[1].time_us = 3;
    let history = history_of(&snapshot, 0);
    assert_eq!(history.steps.iter().map(|step| step.time_us).collect::<Vec<_>>(), [10, 10]);
}

#[test]
fn devices_do_not_mix() {
    let snapshot = snapshot(&[(Alloc, 0)], &[(0, BlockState::Allocated)]);
    let history = history_of(&snapshot, 1);
    assert!(history.allocations.is_empty() && history.steps.is_empty());
}
