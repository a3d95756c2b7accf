//! What the page should show, worked out from the snapshot in another way.

use std::collections::{BTreeMap, HashMap, HashSet};

use cachette_snapshot::{Event, Frame, Snapshot, StackId, TraceAction};

/// The events of a device.
pub(crate) fn events(snapshot: &Snapshot, device: u32) -> &[Event] {
    let trace = snapshot.traces.iter().find(|trace| trace.device == device);
    trace.map_or(&[], |trace| &trace.events)
}

/// What callers hold after so many events, by address; the history must begin with nothing held.
pub(crate) fn held_after(events: &[Event]) -> HashMap<u64, Event> {
    let mut held = HashMap::new();
    for event in events {
        match event.action {
            TraceAction::Alloc => {
                held.insert(event.address, *event);
            }
            TraceAction::FreeRequested => {
                held.remove(&event.address);
            }
            _ => {}
        }
    }
    held
}

/// The most bytes ever held, and after how many events they were first.
pub(crate) fn peak(events: &[Event]) -> (u64, usize) {
    let (mut held, mut best) = (0, (0, 0));
    for (index, event) in events.iter().enumerate() {
        match event.action {
            TraceAction::Alloc => held += event.bytes,
            TraceAction::FreeRequested => held -= event.bytes,
            _ => {}
        }
        if held > best.0 {
            best = (held, index + 1);
        }
    }
    best
}

/// The innermost frame of a stack that is the program's own.
pub(crate) fn owner(snapshot: &Snapshot, stack: StackId) -> &Frame {
    let mut frames = snapshot.stacks.frames_of(stack);
    frames.find(|frame| frame.file.starts_with("/home/")).expect("every stack has one")
}

/// Bytes and blocks of each owner.
pub(crate) fn holders(snapshot: &Snapshot, held: &HashMap<u64, Event>) -> BTreeMap<String, (u64, u64)> {
    let mut holders: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for event in held.values() {
        let holder = holders.entry(owner(snapshot, event.stack).name.clone()).or_default();
        *holder = (holder.0 + event.bytes, holder.1 + 1);
    }
    holders
}

/// How many allocations and owners have a text in a frame.
pub(crate) fn hits(snapshot: &Snapshot, events: &[Event], text: &str) -> (usize, usize) {
    let has = |frame: &Frame| frame.name.contains(text) || frame.file.contains(text);
    let allocations = events.iter().filter(|event| event.action == TraceAction::Alloc);
    let found: Vec<&Event> = allocations.filter(|event| snapshot.stacks.frames_of(event.stack).any(has)).collect();
    let owners: HashSet<&Frame> = found.iter().map(|event| owner(snapshot, event.stack)).collect();
    (found.len(), owners.len())
}
