//! States of a capture, and the calls that end or break it.

use std::sync::Barrier;
use std::thread;

use cachette_hal::{self as hal, CaptureId, CaptureMode, CaptureStatus, Device, ErrorKind, StreamRef};

use crate::rig::prelude::*;

cases! { capture:
    /// A stream's status is active from the begin of its capture to the end.
    a_stream_is_idle_active_and_idle_again(Capture);
    /// No two captures share a number, one after the other or side by side.
    numbers_of_captures_differ(Capture);
    /// A stream that waits for an event of a captured stream is captured under its number.
    a_joined_stream_has_the_captures_number(Capture);
    /// A stream that did not join runs its work at once.
    other_streams_stay_idle(Capture, Transfer);
    /// The default stream cannot be captured.
    the_default_stream_is_refused(Capture);
    /// A stream that is captured cannot be captured again.
    beginning_twice_is_refused(Capture);
    /// Ending a capture that was not begun fails and leaves the stream usable.
    ending_what_was_not_begun_is_refused(Capture);
    /// A capture with a joined stream that was not joined back ends as broken.
    a_stream_not_joined_back_breaks_it(Capture, Transfer);
    /// Waiting for a stream that is being captured fails, and the capture is broken.
    synchronizing_with_a_captured_stream_is_forbidden(Capture);
    /// A host function cannot be queued in a captured stream.
    host_functions_are_forbidden(Capture, HostCalls);
    /// After a broken capture was ended, every stream that had joined runs work and can be captured.
    joined_streams_work_after_a_broken_capture(Capture, Transfer);
    /// A capture that a forbidden call in a joined stream broke ends as broken, and its streams work.
    a_joined_stream_may_break_it(Capture, Transfer);
    /// A second end of a broken capture fails, and leaves the stream usable.
    ending_twice_is_refused(Capture, Transfer);
    /// Of two threads that end one capture, one gets the graph and the other an error.
    of_two_ends_at_once_one_is_refused(Capture, Transfer);
    /// Other threads may use the streams and events of a capture while it ends.
    it_ends_while_others_use_it(Capture, Transfer);
    /// A capture ends while other threads wait for a stream and an event outside it.
    it_ends_while_others_wait_elsewhere(Capture, HostCalls);
}

/// The errors of a begin or an end where the stream is in another state.
const MISPLACED: [ErrorKind; 2] = [ErrorKind::InvalidValue, ErrorKind::CaptureForbids];

fn id_of(on: &Subject, stream: &Stream) -> Verdict<CaptureId> {
    match on.capture_status(stream)? {
        CaptureStatus::Active(id) => Ok(id),
        other => Err(Stop::failed(format!("the captured stream is {other:?}"))),
    }
}

/// Checks that streams are idle, run work, and can be captured.
fn work_again(on: &Subject, streams: &[&Stream]) -> Verdict {
    let area = on.filled(64 * KIB, 1)?;
    for stream in streams {
        ensure_eq!(on.capture_status(*stream)?, CaptureStatus::Idle, "a stream afterwards")?;
        on.fill(area.span(), 5, *stream)?;
        stream.synchronize()?;
        on.expect_byte(area.span(), 5, "what the stream wrote afterwards")?;
        let capturing = Capturing::begin(on, stream, CaptureMode::Global)?;
        on.fill(area.span(), 7, *stream)?;
        let graph = capturing.end()?;
        run(&graph, stream)?;
        on.expect_byte(area.span(), 7, "what the next graph wrote")?;
    }
    Ok(())
}

fn a_stream_is_idle_active_and_idle_again(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    ensure_eq!(on.capture_status(&stream)?, CaptureStatus::Idle, "before")?;
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        let capturing = Capturing::begin(on, &stream, mode)?;
        let id = id_of(on, &stream)?;
        ensure_eq!(id_of(on, &stream)?, id, "the number, asked again")?;
        capturing.end()?;
        ensure_eq!(on.capture_status(&stream)?, CaptureStatus::Idle, "afterwards")?;
    }
    Ok(())
}

fn numbers_of_captures_differ(on: &Subject) -> Verdict {
    let (one, two) = (on.stream()?, on.stream()?);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let first = Capturing::begin(on, &one, CaptureMode::Relaxed)?;
        let second = Capturing::begin(on, &two, CaptureMode::Relaxed)?;
        for stream in [&one, &two] {
            let id = id_of(on, stream)?;
            ensure!(!seen.contains(&id), "{id:?} was given out twice")?;
            seen.push(id);
        }
        first.end()?;
        second.end()?;
    }
    Ok(())
}

fn a_joined_stream_has_the_captures_number(on: &Subject) -> Verdict {
    let (origin, joined) = (on.stream()?, on.stream()?);
    let (fork, join) = (on.event()?, on.event()?);
    let capturing = Capturing::begin(on, &origin, CaptureMode::Relaxed)?;
    link(&fork, &origin, &joined)?;
    ensure_eq!(id_of(on, &joined)?, id_of(on, &origin)?, "the joined stream's number")?;
    link(&join, &joined, &origin)?;
    capturing.end()?;
    ensure_eq!(on.capture_status(&joined)?, CaptureStatus::Idle, "the joined stream afterwards")
}

fn other_streams_stay_idle(on: &Subject) -> Verdict {
    let (area, captured, other) = (on.filled(64 * KIB, 1)?, on.stream()?, on.stream()?);
    let capturing = Capturing::begin(on, &captured, CaptureMode::Relaxed)?;
    ensure_eq!(on.capture_status(&other)?, CaptureStatus::Idle, "the other stream")?;
    on.fill(area.span(), 7, &other)?;
    other.synchronize()?;
    capturing.end()?;
    on.expect_byte(area.span(), 7, "what the other stream wrote")
}

fn the_default_stream_is_refused(on: &Subject) -> Verdict {
    let capture = on.device.capture()?;
    // SAFETY: 1. the default stream always lives.
    let begun = unsafe { capture.begin_capture(StreamRef::DEFAULT, CaptureMode::Relaxed) };
    let kinds = [ErrorKind::InvalidValue, ErrorKind::CaptureForbids, ErrorKind::Unsupported];
    refuse(begun, &kinds, "a capture of the default stream")?;
    Ok(on.device.synchronize_device()?)
}

fn beginning_twice_is_refused(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    let capturing = Capturing::begin(on, &stream, CaptureMode::Relaxed)?;
    // SAFETY: 1. the stream's owner lives.
    let again = unsafe { on.device.capture()?.begin_capture(stream.get(), CaptureMode::Relaxed) };
    refuse(again, &MISPLACED, "a capture in a capture")?;
    drop(capturing);
    stream.synchronize()?;
    Ok(())
}

fn ending_what_was_not_begun_is_refused(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    let capture = on.device.capture()?;
    // SAFETY: 1. the stream's owner lives.
    let ended = unsafe { capture.end_capture(stream.get()) };
    refuse(ended, &MISPLACED, "the end of no capture")?;
    ensure_eq!(on.capture_status(&stream)?, CaptureStatus::Idle, "the stream")?;
    Ok(stream.synchronize()?)
}

fn a_stream_not_joined_back_breaks_it(on: &Subject) -> Verdict {
    let (origin, stray) = (on.stream()?, on.stream()?);
    leave_behind(on, &origin, &stray)?;
    work_again(on, &[&origin, &stray])
}

/// Captures a stream, and ends its capture while `stray` is joined and has work.
fn leave_behind(on: &Subject, origin: &Stream, stray: &Stream) -> Verdict {
    let (area, fork) = (on.filled(64 * KIB, 1)?, on.event()?);
    let capturing = Capturing::begin(on, origin, CaptureMode::Relaxed)?;
    link(&fork, origin, stray)?;
    on.fill(area.span(), 7, stray)?;
    refuse(capturing.end(), &[ErrorKind::CaptureBroken], "a stream left behind").map(drop)
}

fn synchronizing_with_a_captured_stream_is_forbidden(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    let capturing = Capturing::begin(on, &stream, CaptureMode::Relaxed)?;
    capturing.break_by(|| stream.synchronize(), "waiting for a captured stream")?;
    Ok(stream.synchronize()?)
}

fn host_functions_are_forbidden(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    let calls = on.device.host_calls()?;
    let capturing = Capturing::begin(on, &stream, CaptureMode::Relaxed)?;
    // SAFETY: 1. the stream's owner lives.
    let queued = unsafe { calls.call_host(stream.get(), Box::new(|| ())) };
    drop(capturing);
    refuse(queued, &[ErrorKind::CaptureForbids], "a host function in a captured stream")?;
    Ok(stream.synchronize()?)
}

/// Breaks a global capture by waiting for the device, and ends it.
fn break_it(on: &Subject, capturing: Capturing<'_>) -> Verdict {
    capturing.break_by(|| on.device.synchronize_device(), "waiting for the device")
}

fn joined_streams_work_after_a_broken_capture(on: &Subject) -> Verdict {
    let (area, origin, joined) = (on.filled(64 * KIB, 1)?, on.stream()?, on.stream()?);
    let (fork, join) = (on.event()?, on.event()?);
    let capturing = Capturing::begin(on, &origin, CaptureMode::Global)?;
    link(&fork, &origin, &joined)?;
    on.fill(area.span(), 7, &joined)?;
    link(&join, &joined, &origin)?;
    break_it(on, capturing)?;
    work_again(on, &[&joined, &origin])
}

fn a_joined_stream_may_break_it(on: &Subject) -> Verdict {
    let area = on.filled(64 * KIB, 1)?;
    let (origin, joined, fork) = (on.stream()?, on.stream()?, on.event()?);
    let capturing = Capturing::begin(on, &origin, CaptureMode::Relaxed)?;
    link(&fork, &origin, &joined)?;
    on.fill(area.span(), 7, &joined)?;
    capturing.break_by(|| joined.synchronize(), "waiting for a joined stream")?;
    work_again(on, &[&joined, &origin])
}

fn ending_twice_is_refused(on: &Subject) -> Verdict {
    let (stream, stray) = (on.stream()?, on.stream()?);
    let again = || {
        // SAFETY: 1. the stream's owner lives.
        let ended = unsafe { on.device.capture()?.end_capture(stream.get()) };
        refuse(ended, &MISPLACED, "the second end")
    };
    let capturing = Capturing::begin(on, &stream, CaptureMode::Global)?;
    break_it(on, capturing)?;
    again()?;
    leave_behind(on, &stream, &stray)?;
    again()?;
    work_again(on, &[&stream, &stray])
}

fn of_two_ends_at_once_one_is_refused(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    for _ in 0..8 {
        let capturing = Capturing::begin(on, &stream, CaptureMode::Relaxed)?;
        let start = Barrier::new(2);
        let (one, other) = thread::scope(|scope| {
            let other = scope.spawn(|| {
                start.wait();
                // SAFETY: 1. the stream's owner lives. 3 and 4. The graph is empty.
                unsafe { Graph::end_capture(on.device.clone(), stream.get()) }
            });
            start.wait();
            (capturing.end(), other.join())
        });
        let (one, other) = match (one, joined(other, "the end")?) {
            (Ok(graph), refused) | (refused, Ok(graph)) => (graph, refused),
            (Err(error), Err(_)) => return Err(error.into()),
        };
        one.close()?;
        refuse(other, &MISPLACED, "the second end")?;
    }
    work_again(on, &[&stream])
}

fn it_ends_while_others_use_it(on: &Subject) -> Verdict {
    let area = on.filled(64 * KIB, 1)?;
    let (stream, waiter, event) = (on.stream()?, on.stream()?, on.event()?);
    let uses: [(&str, &(dyn Fn() -> hal::Result<()> + Sync)); 7] = [
        ("a fill", &|| on.fill(area.span(), 7, &stream)),
        ("a record", &|| event.record(&stream)),
        ("a query", &|| event.poll().map(drop)),
        ("a wait for the event", &|| event.wait()),
        ("a wait for the stream", &|| stream.synchronize()),
        ("a wait for the device", &|| on.device.synchronize_device()),
        ("a wait of another stream", &|| event.hold_back(&waiter)),
    ];
    for (what, use_it) in uses.iter().cycle().take(32 * uses.len()) {
        let capturing = Capturing::begin(on, &stream, CaptureMode::Relaxed)?;
        on.fill(area.span(), 7, &stream)?;
        event.record(&stream)?;
        let start = Barrier::new(2);
        let (ended, outcome) = thread::scope(|scope| {
            let other = scope.spawn(|| {
                start.wait();
                use_it()
            });
            start.wait();
            (capturing.end(), other.join())
        });
        // The other thread was first, or the end was.
        let kinds = [ErrorKind::CaptureForbids, ErrorKind::CaptureBroken, ErrorKind::InvalidValue];
        if let Err(error) = joined(outcome, "the other thread")? {
            refuse::<()>(Err(error), &kinds, what)?;
        }
        if let Err(error) = ended {
            refuse::<()>(Err(error), &[ErrorKind::CaptureBroken], "the end")?;
        }
    }
    work_again(on, &[&stream, &waiter])
}

fn it_ends_while_others_wait_elsewhere(on: &Subject) -> Verdict {
    let (stream, held) = (on.stream()?, on.stream()?);
    let (event, gate) = on.hold_marked(&held)?;
    let capturing = Capturing::begin(on, &stream, CaptureMode::Relaxed)?;
    let (ended, waited, waits) = thread::scope(|scope| {
        let waits = [scope.spawn(|| held.synchronize()), scope.spawn(|| event.wait())];
        settle();
        let ended = capturing.end();
        let waited = gate.has_passed();
        gate.release();
        (ended, waited, waits.map(thread::ScopedJoinHandle::join))
    });
    ended?;
    ensure!(!waited, "the end waited for another stream")?;
    for wait in waits {
        joined(wait, "a wait")??;
    }
    Ok(())
}
