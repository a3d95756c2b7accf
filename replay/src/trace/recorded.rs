//! Converts the history of a snapshot to a trace.

use std::collections::HashMap;
use std::path::Path;

use cachette_snapshot::{BlockState, Event, Snapshot, TraceAction};

use super::build::Builder;
use super::{Trace, TraceError, TraceProblem, name_of};

/// The memory that the recorded program's allocator held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The device whose history it is.
    pub device: u32,
    /// The most bytes it held from its device while it was recorded.
    pub peak_reserved: u64,
    /// How many allocations are older than the history; they come first in the trace.
    pub earlier: usize,
}

/// The endings of files that hold snapshots.
const ENDINGS: [&str; 2] = [".pickle", ".json"];

/// Reads the history of one device from the snapshot in a file.
pub(super) fn open(path: &Path, device: Option<u32>) -> Result<Trace, TraceError> {
    let fail = |problem| TraceError { path: path.to_owned(), line: None, problem };
    let snapshot = Snapshot::read(path).map_err(|error| fail(error.problem.into()))?;
    let device = choose(&snapshot, device).map_err(fail)?;
    trace(&snapshot, device, name_of(path, &ENDINGS)).map_err(fail)
}

/// The device whose history is replayed: the one asked for, or the only one there is.
fn choose(snapshot: &Snapshot, device: Option<u32>) -> Result<u32, TraceProblem> {
    let traces = snapshot.traces.iter();
    let known: Vec<u32> = traces.filter(|trace| !trace.events.is_empty()).map(|trace| trace.device).collect();
    let listed = || {
        let known: Vec<_> = known.iter().map(u32::to_string).collect();
        known.join(", ")
    };
    match (device, &known[..]) {
        (_, []) => Err(TraceProblem::NoHistory),
        (None, [only]) => Ok(*only),
        (None, _) => Err(TraceProblem::SeveralDevices(listed())),
        (Some(device), known) if known.contains(&device) => Ok(device),
        (Some(device), _) => Err(TraceProblem::NoSuchDevice { device, known: listed() }),
    }
}

fn trace(snapshot: &Snapshot, device: u32, name: String) -> Result<Trace, TraceProblem> {
    let events: Vec<&Event> =
        snapshot.traces.iter().filter(|trace| trace.device == device).flat_map(|trace| &trace.events).collect();
    let freed = freeing(&events);
    let earlier = earlier(snapshot, device, &events, freed);
    let mut builder = Builder::default();
    for older in &earlier {
        builder.allocate(older.address, older.bytes, older.stream)?;
    }
    let mut held = Held::before(snapshot, device, &events);
    for event in events {
        let id = event.address;
        if event.action == TraceAction::Alloc {
            // A recorder that omits frees still shows when the memory is reused.
            if builder.is_live(id) {
                builder.free(id)?;
            }
            builder.allocate(id, event.bytes, event.stream)?;
        } else if event.action == freed && builder.is_live(id) {
            builder.free(id)?;
        } else {
            held.follow(event);
        }
    }
    if builder.operations.is_empty() {
        return Err(TraceProblem::NoHistory);
    }
    let mut trace = builder.finish(name);
    trace.recorded = Some(Recorded { device, peak_reserved: held.peak, earlier: earlier.len() });
    Ok(trace)
}

/// The events that free memory: completed frees, or requested ones if those were not recorded.
fn freeing(events: &[&Event]) -> TraceAction {
    let completed = events.iter().any(|event| event.action == TraceAction::FreeCompleted);
    if completed { TraceAction::FreeCompleted } else { TraceAction::FreeRequested }
}

/// An allocation that is older than the history.
#[derive(Debug)]
struct Older {
    address: u64,
    bytes: u64,
    stream: u64,
}

/// The allocations that are older than the history, by address: those it only frees, and live ones that it does not
/// mention.
fn earlier(snapshot: &Snapshot, device: u32, events: &[&Event], freed: TraceAction) -> Vec<Older> {
    let mut older = Vec::new();
    // Whether the address is live now, if the history says anything of it.
    let mut live: HashMap<u64, bool> = HashMap::new();
    for event in events {
        if event.action == TraceAction::Alloc {
            live.insert(event.address, true);
        } else if event.action == freed && live.insert(event.address, false).is_none() {
            older.push(Older { address: event.address, bytes: event.bytes, stream: event.stream });
        }
    }
    let segments = snapshot.segments.iter();
    for segment in segments.filter(|segment| segment.device == device) {
        let used =
            segment.blocks.iter().filter(|block| block.state != BlockState::Free && !live.contains_key(&block.address));
        older.extend(used.map(|block| Older {
            address: block.address,
            bytes: block.requested,
            stream: segment.stream,
        }));
    }
    older.sort_by_key(|older| older.address);
    older.dedup_by_key(|older| older.address);
    older
}

/// What the recorded allocator held from its device.
#[derive(Debug)]
struct Held {
    now: u64,
    peak: u64,
}

impl Held {
    /// Before the first event: what was held at the end, and every event undone.
    fn before(snapshot: &Snapshot, device: u32, events: &[&Event]) -> Self {
        let segments = snapshot.segments.iter();
        let segments = segments.filter(|segment| segment.device == device);
        let end = segments.fold(0_u64, |sum, segment| sum.saturating_add(segment.bytes));
        let now = events.iter().rev().fold(end, |now, event| {
            let (gained, lost) = moved(event);
            now.saturating_sub(gained).saturating_add(lost)
        });
        Self { now, peak: now }
    }

    fn follow(&mut self, event: &Event) {
        let (gained, lost) = moved(event);
        self.now = self.now.saturating_add(gained).saturating_sub(lost);
        self.peak = self.peak.max(self.now);
    }
}

/// The bytes that an event takes from the device, and those that it gives back.
const fn moved(event: &Event) -> (u64, u64) {
    match event.action {
        TraceAction::SegmentAlloc | TraceAction::SegmentMap => (event.bytes, 0),
        TraceAction::SegmentFree | TraceAction::SegmentUnmap => (0, event.bytes),
        _ => (0, 0),
    }
}

#[cfg(test)]
mod tests;
