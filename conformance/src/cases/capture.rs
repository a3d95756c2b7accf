//! The effects of captured graphs.

use cachette_hal::{CaptureMode, Device};

use crate::rig::prelude::*;

cases! { capture:
    /// Work queued in a captured stream is recorded, and runs when the graph is launched.
    nothing_runs_before_the_launch(Capture, Transfer);
    /// A graph launched many times runs each time.
    every_launch_runs_it_again(Capture, Transfer);
    /// Each launch works on what the launch before it left.
    launches_in_one_stream_accumulate(Capture, Transfer);
    /// Recorded work that depends on earlier recorded work comes after it.
    recorded_order_is_kept(Capture, Transfer);
    /// A stream that joined by an event and was joined back is part of the graph, in order.
    a_joined_stream_is_recorded_in_order(Capture, Transfer);
    /// A launch comes after earlier and before later work of its stream, which is no longer captured.
    a_launch_keeps_its_place_in_the_stream(Capture, Transfer);
    /// A graph launched into a held stream does not run before the stream goes on.
    a_launch_waits_in_a_held_stream(Capture, Transfer, HostCalls);
    /// A graph runs in streams other than the one it was captured from.
    a_graph_may_be_launched_into_any_stream(Capture, Transfer);
    /// Launching one graph runs nothing of another.
    two_graphs_are_independent(Capture, Transfer);
    /// A launch that was queued runs to its end although the graph was destroyed.
    a_destroyed_graph_still_runs_what_was_launched(Capture, Transfer, HostCalls);
    /// A capture in which nothing was queued gives a graph that does nothing.
    an_empty_capture_gives_a_graph(Capture, Transfer);
}

const BYTES: u64 = 64 * KIB;

fn captured_fill(on: &Subject, area: &Memory, byte: u8, stream: &Stream) -> Verdict<Graph> {
    let capturing = Capturing::begin(on, stream, CaptureMode::Relaxed)?;
    on.fill(area.span(), byte, stream)?;
    Ok(capturing.end()?)
}

/// Checks that a launch of a captured fill writes the area again.
fn rewrites(on: &Subject, graph: &Graph, area: &Memory, stream: &Stream) -> Verdict {
    on.put_pattern(area.span(), 3)?;
    run(graph, stream)?;
    on.expect_byte(area.span(), 7, "what the launch wrote")
}

fn nothing_runs_before_the_launch(on: &Subject) -> Verdict {
    let (x, y, stream) = (on.filled(BYTES, 1)?, on.filled(BYTES, 2)?, on.stream()?);
    let capturing = Capturing::begin(on, &stream, CaptureMode::Relaxed)?;
    on.fill(x.span(), 7, &stream)?;
    on.copy(y.span(), x.span(), &stream)?;
    let graph = capturing.end()?;
    settle();
    on.device.synchronize_device()?;
    on.expect_byte(x.span(), 1, "the target of a recorded fill")?;
    on.expect_byte(y.span(), 2, "the target of a recorded copy")?;
    run(&graph, &stream)?;
    on.expect_byte(x.span(), 7, "the target of the fill after the launch")?;
    on.expect_byte(y.span(), 7, "the target of the copy after the launch")
}

fn every_launch_runs_it_again(on: &Subject) -> Verdict {
    let (area, stream) = (on.filled(BYTES, 1)?, on.stream()?);
    let graph = captured_fill(on, &area, 7, &stream)?;
    (0..5).try_for_each(|_| rewrites(on, &graph, &area, &stream))
}

/// Each launch moves the content of every part to the next.
fn launches_in_one_stream_accumulate(on: &Subject) -> Verdict {
    const PARTS: u64 = 6;
    let area = on.filled(PARTS * BYTES, 0)?;
    let part = |i: u64| area.span().nth(i, BYTES);
    for i in 0..PARTS {
        on.put_pattern(part(i), i)?;
    }
    let stream = on.stream()?;
    let capturing = Capturing::begin(on, &stream, CaptureMode::Relaxed)?;
    for i in (1..PARTS).rev() {
        on.copy(part(i), part(i - 1), &stream)?;
    }
    let graph = capturing.end()?;
    for launches in 1..PARTS {
        run(&graph, &stream)?;
        on.expect_pattern(part(launches), 0, "what has moved once a launch")?;
    }
    on.expect_pattern(part(PARTS - 1), 0, "what has moved all the way")
}

fn recorded_order_is_kept(on: &Subject) -> Verdict {
    const ROUNDS: u8 = 16;
    let (source, seen) = (on.filled(BYTES, 0)?, on.filled(u64::from(ROUNDS) * BYTES, 0)?);
    let stream = on.stream()?;
    let capturing = Capturing::begin(on, &stream, CaptureMode::Relaxed)?;
    for round in 0..ROUNDS {
        on.fill(source.span(), round + 1, &stream)?;
        on.copy(seen.span().nth(round, BYTES), source.span(), &stream)?;
    }
    let graph = capturing.end()?;
    run(&graph, &stream)?;
    on.expect_parts(seen.span(), BYTES, 1, "the copy between two fills")
}

fn a_joined_stream_is_recorded_in_order(on: &Subject) -> Verdict {
    let (x, y, z) = (on.filled(BYTES, 1)?, on.filled(BYTES, 2)?, on.filled(BYTES, 3)?);
    let (origin, joined) = (on.stream()?, on.stream()?);
    let (fork, join) = (on.event()?, on.event()?);
    let capturing = Capturing::begin(on, &origin, CaptureMode::Relaxed)?;
    on.fill(x.span(), 7, &origin)?;
    link(&fork, &origin, &joined)?;
    on.copy(y.span(), x.span(), &joined)?;
    link(&join, &joined, &origin)?;
    on.copy(z.span(), y.span(), &origin)?;
    let graph = capturing.end()?;
    settle();
    on.expect_byte(y.span(), 2, "the joined stream's target before the launch")?;
    for _ in 0..3 {
        on.put_pattern(y.span(), 4)?;
        run(&graph, &origin)?;
        on.expect_byte(z.span(), 7, "what went through both streams")?;
    }
    Ok(())
}

fn a_launch_keeps_its_place_in_the_stream(on: &Subject) -> Verdict {
    let (x, before, after) = (on.filled(BYTES, 1)?, on.filled(BYTES, 2)?, on.filled(BYTES, 3)?);
    let stream = on.stream()?;
    let graph = captured_fill(on, &x, 7, &stream)?;
    on.fill(x.span(), 5, &stream)?;
    on.copy(before.span(), x.span(), &stream)?;
    graph.launch(&stream)?;
    on.copy(after.span(), x.span(), &stream)?;
    on.fill(x.span(), 9, &stream)?;
    stream.synchronize()?;
    on.expect_byte(before.span(), 5, "what was copied before the launch")?;
    on.expect_byte(after.span(), 7, "what was copied after the launch")?;
    on.expect_byte(x.span(), 9, "the last fill")
}

fn a_launch_waits_in_a_held_stream(on: &Subject) -> Verdict {
    let (area, stream, event) = (on.filled(BYTES, 1)?, on.stream()?, on.event()?);
    let graph = captured_fill(on, &area, 7, &stream)?;
    // A graph's first launch may wait for the device.
    run(&graph, &stream)?;
    on.put_pattern(area.span(), 3)?;
    let gate = on.hold_warm(&stream)?;
    graph.launch(&stream)?;
    event.record(&stream)?;
    settle();
    ensure!(!event.poll()?.is_done(), "the launch did not wait")?;
    gate.release_and_wait(&stream)?;
    on.expect_byte(area.span(), 7, "what the launch wrote")
}

fn a_graph_may_be_launched_into_any_stream(on: &Subject) -> Verdict {
    let (area, origin) = (on.filled(BYTES, 1)?, on.stream()?);
    let graph = captured_fill(on, &area, 7, &origin)?;
    origin.close()?;
    (0..3).try_for_each(|_| rewrites(on, &graph, &area, &on.stream()?))
}

fn two_graphs_are_independent(on: &Subject) -> Verdict {
    let (x, y, stream) = (on.filled(BYTES, 1)?, on.filled(BYTES, 2)?, on.stream()?);
    let first = captured_fill(on, &x, 7, &stream)?;
    let second = captured_fill(on, &y, 8, &stream)?;
    run(&first, &stream)?;
    on.expect_byte(x.span(), 7, "the first graph's target")?;
    on.expect_byte(y.span(), 2, "the second graph's target")?;
    first.close()?;
    run(&second, &stream)?;
    on.expect_byte(y.span(), 8, "the second graph's target, launched")
}

fn a_destroyed_graph_still_runs_what_was_launched(on: &Subject) -> Verdict {
    let (area, stream) = (on.filled(BYTES, 1)?, on.stream()?);
    let graph = captured_fill(on, &area, 7, &stream)?;
    run(&graph, &stream)?;
    on.put_pattern(area.span(), 3)?;
    let gate = on.hold_warm(&stream)?;
    graph.launch(&stream)?;
    graph.close()?;
    gate.release_and_wait(&stream)?;
    on.expect_byte(area.span(), 7, "what the destroyed graph was to write")
}

fn an_empty_capture_gives_a_graph(on: &Subject) -> Verdict {
    let (area, stream) = (on.filled(BYTES, 1)?, on.stream()?);
    let graph = Capturing::begin(on, &stream, CaptureMode::Relaxed)?.end()?;
    run(&graph, &stream)?;
    on.expect_byte(area.span(), 1, "memory that no graph names")
}
