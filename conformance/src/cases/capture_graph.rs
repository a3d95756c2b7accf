//! The graph of a capture in progress: frontiers, and the dependencies of nodes.

use std::collections::HashSet;

use cachette_hal::{CaptureMode, CaptureStatus, Device};

use crate::rig::prelude::*;

cases! { capture:
    /// The frontier of a fresh capture is empty, or one node that depends on nothing.
    a_fresh_one_has_no_node_or_one_root(Capture);
    /// Work that is captured becomes its stream's frontier, behind what was the frontier before.
    work_becomes_the_frontier_of_its_stream(Capture, Transfer);
    /// Without a wait a stream's frontier reaches nothing that another captured since they parted.
    a_frontier_does_not_reach_what_another_stream_did_since(Capture, Transfer);
    /// After a wait a stream's frontier reaches all that the other captured before the event.
    a_wait_lets_a_frontier_reach_the_other_streams_work(Capture, Transfer);
    /// What a stream captured after an event is not reached by who waits for that event.
    a_wait_reaches_no_further_than_its_event(Capture, Transfer);
    /// A stream that is not captured says so and has no frontier, while another is captured too.
    an_idle_stream_has_no_frontier(Capture);
    /// A stream whose capture is broken says so and has no frontier.
    a_broken_one_has_no_frontier(Capture);
    /// Asking what a node of a broken capture depends on does no harm, whatever the answer is.
    nodes_of_a_broken_one_can_be_asked_for(Capture, Transfer);
    /// A capture in the strictest mode stays whole when its nodes are asked for, and its graph runs.
    asking_for_nodes_breaks_nothing(Capture, Transfer);
}

fn a_fresh_one_has_no_node_or_one_root(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    let capturing = Capturing::begin(on, &stream, CaptureMode::Relaxed)?;
    let (status, nodes) = on.frontier(&stream)?;
    ensure_eq!(status, on.capture_status(&stream)?, "the status told")?;
    ensure!(nodes.len() <= 1, "a fresh frontier has {} nodes", nodes.len())?;
    let reached = on.reach(&stream)?.len();
    ensure_eq!(reached, nodes.len(), "the nodes of a fresh capture")?;
    capturing.end()?;
    Ok(())
}

fn work_becomes_the_frontier_of_its_stream(on: &Subject) -> Verdict {
    let (area, stream) = (on.filled(64 * KIB, 1)?, on.stream()?);
    let capturing = Capturing::begin(on, &stream, CaptureMode::Relaxed)?;
    let mut before = on.reach(&stream)?;
    for byte in 2..6 {
        on.fill(area.span(), byte, &stream)?;
        let (status, frontier) = on.frontier(&stream)?;
        ensure_eq!(status, on.capture_status(&stream)?, "the status told")?;
        let fresh = frontier.iter().all(|node| !before.contains(node));
        ensure!(!frontier.is_empty() && fresh, "work did not move the frontier")?;
        let after = on.reach(&stream)?;
        ensure!(after.is_superset(&before), "work left something behind")?;
        before = after;
    }
    capturing.end()?;
    Ok(())
}

/// Captures a fill in one stream and then what `act` does, with a second stream that joins and is joined back.
fn with_joined(on: &Subject, act: impl FnOnce(Span<'_>, &Stream, &Stream) -> Verdict) -> Verdict {
    let (area, origin, joined) = (on.filled(64 * KIB, 1)?, on.stream()?, on.stream()?);
    let (fork, join) = (on.event()?, on.event()?);
    let capturing = Capturing::begin(on, &origin, CaptureMode::Relaxed)?;
    on.fill(area.span(), 2, &origin)?;
    link(&fork, &origin, &joined)?;
    act(area.span(), &origin, &joined)?;
    link(&join, &joined, &origin)?;
    capturing.end()?;
    Ok(())
}

fn a_frontier_does_not_reach_what_another_stream_did_since(on: &Subject) -> Verdict {
    with_joined(on, |area, origin, joined| {
        let shared = on.reach(origin)?;
        ensure_eq!(on.reach(joined)?, shared, "what both have behind them")?;
        on.fill(area.part(0, 32 * KIB), 3, joined)?;
        on.fill(area.part(32 * KIB, 32 * KIB), 4, origin)?;
        let (here, there) = (on.reach(origin)?, on.reach(joined)?);
        let common: HashSet<_> = here.intersection(&there).copied().collect();
        ensure_eq!(common, shared, "what both reach after they parted")
    })
}

fn a_wait_lets_a_frontier_reach_the_other_streams_work(on: &Subject) -> Verdict {
    let waited = on.event()?;
    with_joined(on, |area, origin, joined| {
        on.fill(area.part(0, 32 * KIB), 3, joined)?;
        on.fill(area.part(0, 32 * KIB), 5, joined)?;
        on.fill(area.part(32 * KIB, 32 * KIB), 4, origin)?;
        let (here, there) = (on.reach(origin)?, on.reach(joined)?);
        ensure!(!there.is_subset(&here), "the wait has nothing to show")?;
        link(&waited, joined, origin)?;
        let reached = on.reach(origin)?;
        ensure!(reached.is_superset(&there), "the wait does not show")?;
        ensure!(reached.is_superset(&here), "the stream's own work is lost")?;
        on.fill(area, 6, origin)?;
        let reached = on.reach(origin)?;
        ensure!(reached.is_superset(&there), "work forgot the wait")
    })
}

fn a_wait_reaches_no_further_than_its_event(on: &Subject) -> Verdict {
    let middle = on.event()?;
    with_joined(on, |area, origin, joined| {
        on.fill(area.part(0, 32 * KIB), 2, joined)?;
        middle.record(joined)?;
        let before = on.reach(joined)?;
        on.fill(area.part(0, 32 * KIB), 3, joined)?;
        let (_, after) = on.frontier(joined)?;
        middle.hold_back(origin)?;
        let reached = on.reach(origin)?;
        ensure!(reached.is_superset(&before), "the wait does not show")?;
        let further = after.iter().any(|node| reached.contains(node));
        ensure!(!further, "the wait is for more than was recorded")
    })
}

fn an_idle_stream_has_no_frontier(on: &Subject) -> Verdict {
    let (captured, other) = (on.stream()?, on.stream()?);
    let expect_none = |what: &str| -> Verdict {
        let (status, nodes) = on.frontier(&other)?;
        ensure_eq!(status, CaptureStatus::Idle, "a stream {what}")?;
        ensure!(nodes.is_empty(), "a stream {what} has a frontier")
    };
    expect_none("before any capture")?;
    let capturing = Capturing::begin(on, &captured, CaptureMode::Relaxed)?;
    expect_none("that did not join")?;
    let (status, nodes) = on.frontier(&DefaultStream)?;
    ensure_eq!(status, CaptureStatus::Idle, "the default stream")?;
    ensure!(nodes.is_empty(), "the default stream has a frontier")?;
    capturing.end()?;
    expect_none("after a capture")
}

fn a_broken_one_has_no_frontier(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    let capturing = Capturing::begin(on, &stream, CaptureMode::Relaxed)?;
    // This call is forbidden, and breaks the capture.
    let _ = stream.synchronize();
    let (status, nodes) = on.frontier(&stream)?;
    ensure_eq!(status, CaptureStatus::Broken, "a broken capture")?;
    ensure!(nodes.is_empty(), "a broken capture has a frontier")?;
    drop(capturing);
    Ok(stream.synchronize()?)
}

fn nodes_of_a_broken_one_can_be_asked_for(on: &Subject) -> Verdict {
    let (area, stream) = (on.filled(64 * KIB, 1)?, on.stream()?);
    let capturing = Capturing::begin(on, &stream, CaptureMode::Relaxed)?;
    on.fill(area.span(), 2, &stream)?;
    let (_, nodes) = on.frontier(&stream)?;
    // This call is forbidden, and breaks the capture.
    let _ = stream.synchronize();
    for node in nodes {
        // SAFETY: 1. the capture is not ended yet.
        let _ = unsafe { on.device.capture()?.dependencies(node, &mut Vec::new()) };
    }
    drop(capturing);
    on.fill(area.span(), 5, &stream)?;
    stream.synchronize()?;
    on.expect_byte(area.span(), 5, "what the stream wrote")
}

fn asking_for_nodes_breaks_nothing(on: &Subject) -> Verdict {
    let area = on.filled(64 * KIB, 1)?;
    on.expect_whole(CaptureMode::Global, |stream| {
        let status = on.capture_status(stream)?;
        on.reach(stream)?;
        on.fill(area.span(), 7, stream)?;
        on.reach(stream)?;
        ensure_eq!(on.capture_status(stream)?, status, "the capture")
    })
}
