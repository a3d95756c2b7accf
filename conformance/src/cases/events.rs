//! Events: what they mark, and which waits they end.

use std::collections::HashSet;
use std::thread;

use cachette_hal::Progress;

use crate::rig::prelude::*;

cases! { events:
    /// An event counts as passed until it is recorded, and a wait for it returns.
    poll_before_record_is_done();
    /// No two live events share a handle.
    live_ones_have_different_handles();
    /// An event is pending while work before its record has not finished, and done after a wait for it.
    poll_is_pending_while_work_is_held(HostCalls);
    /// Work queued after the record does not matter to the event.
    poll_ignores_work_after_the_record(HostCalls);
    /// Waiting for an event blocks the host until the work before it has finished.
    wait_blocks_until_the_work_finished(HostCalls);
    /// Recording, and telling a stream to wait, return while the stream is held.
    record_and_stream_wait_do_not_block_the_host(HostCalls);
    /// An event that had passed is pending again after a new record.
    a_later_record_replaces_an_earlier_one(HostCalls);
    /// An event recorded in a held stream and then in an idle one is about the idle one.
    a_record_elsewhere_replaces_a_pending_one(HostCalls);
    /// Work queued after a wait does not run before what the event marks, in any number of streams.
    stream_wait_holds_later_work(HostCalls) = |on| holds_later_work(on, false);
    /// Work queued before a wait runs although the event is pending.
    stream_wait_does_not_hold_earlier_work(HostCalls);
    /// A stream told to wait for an event that was never recorded goes on.
    stream_wait_for_an_unrecorded_one_is_no_wait(Transfer);
    /// Records made after a stream was told to wait do not matter to it.
    stream_wait_is_for_the_record_of_that_moment(HostCalls);
    /// Streams told to wait for an event wait even after it was destroyed.
    a_destroyed_one_is_still_waited_for(HostCalls) = |on| holds_later_work(on, true);
    /// An event recorded in a stream that is then destroyed passes when its work is done.
    one_recorded_in_a_destroyed_stream_passes(HostCalls);
    /// Creating, recording and destroying thousands of events works throughout.
    thousands_come_and_go();
}

fn poll_before_record_is_done(on: &Subject) -> Verdict {
    let event = on.event()?;
    ensure_eq!(event.poll()?, Progress::Done, "a new event")?;
    Ok(event.wait()?)
}

fn live_ones_have_different_handles(on: &Subject) -> Verdict {
    let live = (0..64).map(|_| on.event()).collect::<Result<Vec<_>, _>>()?;
    let mut seen = HashSet::new();
    let twice = live.iter().find(|event| !seen.insert(event.get().raw()));
    if let Some(event) = twice {
        let text = format!("{:?} was given out twice", event.get());
        // One handle with two owners must not be destroyed twice, so the failing case leaks.
        live.into_iter().for_each(leak);
        return Err(Stop::failed(text));
    }
    Ok(())
}

/// Keeps an owner's handle alive until its backend is gone.
#[expect(clippy::mem_forget, reason = "a handle given out twice has no owner that may destroy it")]
fn leak(event: Event) {
    std::mem::forget(event);
}

fn poll_is_pending_while_work_is_held(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    let (event, gate) = on.hold_marked(&stream)?;
    ensure_eq!(event.poll()?, Progress::Pending, "an event behind a held stream")?;
    settle();
    ensure_eq!(event.poll()?, Progress::Pending, "the same event a while later")?;
    gate.release();
    event.wait()?;
    for _ in 0..4 {
        ensure_eq!(event.poll()?, Progress::Done, "an event that was waited for")?;
    }
    Ok(())
}

fn poll_ignores_work_after_the_record(on: &Subject) -> Verdict {
    let (stream, event) = (on.stream()?, on.event()?);
    event.record(&stream)?;
    let _gate = on.hold(&stream)?;
    event.wait()?;
    ensure_eq!(event.poll()?, Progress::Done, "an event before the held work")
}

fn wait_blocks_until_the_work_finished(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    let (event, gate) = on.hold_marked(&stream)?;
    blocks_until_released(&gate, || event.wait())
}

fn record_and_stream_wait_do_not_block_the_host(on: &Subject) -> Verdict {
    let (held, other) = (on.stream()?, on.stream()?);
    let (first, second) = (on.event()?, on.event()?);
    let _gate = on.hold(&held)?;
    link(&first, &held, &other)?;
    second.record(&other)?;
    ensure!(!first.poll()?.is_done(), "the stream was not held any more")?;
    ensure!(!second.poll()?.is_done(), "the waiting stream was not held any more")
}

fn a_later_record_replaces_an_earlier_one(on: &Subject) -> Verdict {
    let (stream, event) = (on.stream()?, on.event()?);
    event.record(&stream)?;
    event.wait()?;
    let gate = on.hold(&stream)?;
    event.record(&stream)?;
    ensure_eq!(event.poll()?, Progress::Pending, "the second record")?;
    gate.release();
    event.wait()?;
    ensure_eq!(event.poll()?, Progress::Done, "the second record after its work")
}

fn a_record_elsewhere_replaces_a_pending_one(on: &Subject) -> Verdict {
    let (held, idle) = (on.stream()?, on.stream()?);
    let (event, _gate) = on.hold_marked(&held)?;
    event.record(&idle)?;
    event.wait()?;
    ensure_eq!(event.poll()?, Progress::Done, "the record in the idle stream")
}

/// Checks that streams wait for an event, which may be destroyed when they have been told to.
fn holds_later_work(on: &Subject, destroys: bool) -> Verdict {
    let held = on.stream()?;
    let mut waiting = Vec::new();
    for _ in 0..8 {
        waiting.push((on.stream()?, on.event()?));
    }
    let (marks, gate) = on.hold_marked(&held)?;
    for (stream, after) in &waiting {
        marks.hold_back(stream)?;
        after.record(stream)?;
    }
    if destroys {
        marks.close()?;
    }
    settle();
    for (_, after) in &waiting {
        ensure_eq!(after.poll()?, Progress::Pending, "work behind the wait")?;
    }
    gate.release();
    for (_, after) in &waiting {
        after.wait()?;
    }
    Ok(())
}

fn stream_wait_does_not_hold_earlier_work(on: &Subject) -> Verdict {
    let (held, other, before) = (on.stream()?, on.stream()?, on.event()?);
    let (marks, _gate) = on.hold_marked(&held)?;
    before.record(&other)?;
    marks.hold_back(&other)?;
    before.wait()?;
    ensure!(!marks.poll()?.is_done(), "the stream was not held any more")
}

fn stream_wait_for_an_unrecorded_one_is_no_wait(on: &Subject) -> Verdict {
    let (area, stream, event) = (on.filled(4 * KIB, 0)?, on.stream()?, on.event()?);
    event.hold_back(&stream)?;
    on.fill(area.span(), 3, &stream)?;
    stream.synchronize()?;
    on.expect_byte(area.span(), 3, "work behind the wait")
}

/// One stream with two gates resumes the waiting streams one after the other.
fn stream_wait_is_for_the_record_of_that_moment(on: &Subject) -> Verdict {
    let (gates, waiter, late) = (on.stream()?, on.stream()?, on.stream()?);
    let (first, second) = (on.event()?, on.event()?);
    let (moving, after) = (on.event()?, on.event()?);
    let first_gate = on.hold(&gates)?;
    first.record(&gates)?;
    let second_gate = on.hold(&gates)?;
    second.record(&gates)?;
    // The waiter waits for a record that completes with the first gate.
    first.hold_back(&waiter)?;
    first.hold_back(&late)?;
    link(&moving, &late, &waiter)?;
    after.record(&waiter)?;
    // The event then marks work that completes only with the second gate.
    second.hold_back(&late)?;
    moving.record(&late)?;
    first_gate.release();
    after.wait()?;
    ensure_eq!(moving.poll()?, Progress::Pending, "the later record")?;
    second_gate.release();
    moving.wait()?;
    Ok(())
}

fn one_recorded_in_a_destroyed_stream_passes(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    let (event, gate) = on.hold_marked(&stream)?;
    // On a separate thread: some drivers, and tools in front of them, block here until the work is done.
    thread::scope(|scope| {
        let waiter = scope.spawn(|| stream.close());
        settle();
        let progress = event.poll()?;
        // Even a call that blocks does so no longer than the gate stays closed by itself.
        let early = progress.is_done() && !gate.has_passed();
        gate.release();
        ensure!(!early, "the event passed while its stream was held")?;
        Verdict::Ok(joined(waiter.join(), "the destruction")??)
    })?;
    event.wait()?;
    ensure_eq!(event.poll()?, Progress::Done, "the event after its work")
}

fn thousands_come_and_go(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    for _ in 0..4000 {
        let event = on.event()?;
        event.record(&stream)?;
        event.close()?;
    }
    let last = on.event()?;
    last.record(&stream)?;
    Ok(last.wait()?)
}
