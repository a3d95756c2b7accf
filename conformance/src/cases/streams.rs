//! Streams: order inside one, independence between them.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use cachette_hal::{Device, ErrorKind, Result};

use crate::rig::prelude::*;

/// How often a destruction is looked at before it counts as one that waits for the stream's work.
const CLOSING: usize = 20;

cases! { streams:
    /// No two live streams share a handle, and none is the default stream.
    live_ones_have_different_handles();
    /// Each piece of work sees what the pieces before it in the stream wrote.
    work_runs_in_the_order_it_was_queued(Transfer) = |on| runs_in_order(on, |_| Ok(None));
    /// Work that piled up in a stream still runs in order.
    held_work_runs_in_the_order_it_was_queued(Transfer, HostCalls) = |on| runs_in_order(on, |stream| on.hold_warm(stream).map(Some));
    /// A stream runs while another is held.
    a_held_one_does_not_hold_another(HostCalls) = |on| runs_beside(on, &on.stream()?, &on.stream()?);
    /// A created stream runs while the default stream is held.
    created_ones_do_not_wait_for_the_default_stream(HostCalls)
        = |on| runs_beside(on, &on.stream()?, &DefaultStream);
    /// The default stream runs while a created stream is held.
    the_default_stream_does_not_wait_for_created_ones(HostCalls)
        = |on| runs_beside(on, &DefaultStream, &on.stream()?);
    /// Work queued in the default stream runs in order.
    the_default_stream_runs_work(Transfer);
    /// Synchronising with a stream blocks the host until its work has finished.
    synchronize_blocks_until_queued_work_finished(HostCalls);
    /// Synchronising with a stream that has no work returns, as often as one likes.
    synchronize_of_an_idle_one_returns();
    /// Synchronising with one stream does not wait for another that is held.
    synchronize_does_not_wait_for_other_streams(HostCalls);
    /// Synchronising with the device blocks while any stream of it is held, also the default one.
    synchronize_device_waits_for_every_stream(HostCalls);
    /// A wait for the device covers the work of destroyed streams, unless the destruction has waited for it.
    synchronize_device_waits_for_a_destroyed_stream(Transfer, HostCalls);
    /// Work that was queued before a stream was destroyed runs to its end.
    a_destroyed_one_finishes_its_work(Transfer, HostCalls);
    /// Dozens of streams live at once, and each does its own work.
    many_live_together(Transfer);
    /// A live stream of another device is answered properly, and both devices go on.
    one_of_another_device_is_answered(Transfer).on_devices(2);
}

fn live_ones_have_different_handles(on: &Subject) -> Verdict {
    let live = (0..32).map(|_| on.stream()).collect::<Result<Vec<_>>>()?;
    let mut seen = HashSet::from([cachette_hal::StreamRef::DEFAULT]);
    for stream in &live {
        ensure!(seen.insert(stream.get()), "{:?} was given out twice", stream.get())?;
    }
    Ok(())
}

/// Queues alternating fills and copies, so that part `i` ends as `i + 1` only in the right order.
fn runs_in_order(on: &Subject, hold: impl FnOnce(&Stream) -> Verdict<Option<Gate>>) -> Verdict {
    const BYTES: u64 = 16 * KIB;
    let (area, stream) = (on.filled(16 * BYTES, 0)?, on.stream()?);
    let first = area.span().part(0, BYTES);
    let gate = hold(&stream)?;
    for part in 1..16_u8 {
        on.fill(first, part, &stream)?;
        on.copy(area.span().nth(part, BYTES), first, &stream)?;
    }
    on.fill(first, 0xff, &stream)?;
    drop(gate);
    stream.synchronize()?;
    on.expect_parts(area.span().part(BYTES, 15 * BYTES), BYTES, 1, "the copy made between two fills")?;
    on.expect_byte(first, 0xff, "the last fill")
}

/// Checks that a stream runs while another is held.
fn runs_beside(on: &Subject, stream: &impl AsStream, other: &impl AsStream) -> Verdict {
    let (held, free) = (on.event()?, on.event()?);
    let _gate = on.hold(other)?;
    on.record(&held, other)?;
    on.record(&free, stream)?;
    free.wait()?;
    ensure!(!held.poll()?.is_done(), "the other stream was not held")
}

fn the_default_stream_runs_work(on: &Subject) -> Verdict {
    let (from, to) = (on.filled(64 * KIB, 1)?, on.filled(64 * KIB, 2)?);
    on.fill(from.span(), 3, &DefaultStream)?;
    on.copy(to.span(), from.span(), &DefaultStream)?;
    on.synchronize(&DefaultStream)?;
    on.expect_byte(to.span(), 3, "the copy")
}

fn synchronize_blocks_until_queued_work_finished(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    let gate = on.hold(&stream)?;
    blocks_until_released(&gate, || stream.synchronize())
}

fn synchronize_of_an_idle_one_returns(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    for _ in 0..8 {
        stream.synchronize()?;
        on.synchronize(&DefaultStream)?;
        on.device.synchronize_device()?;
    }
    Ok(())
}

fn synchronize_does_not_wait_for_other_streams(on: &Subject) -> Verdict {
    let (held, free) = (on.stream()?, on.stream()?);
    let (event, _gate) = on.hold_marked(&held)?;
    free.synchronize()?;
    ensure!(!event.poll()?.is_done(), "the other stream was waited for")
}

fn synchronize_device_waits_for_every_stream(on: &Subject) -> Verdict {
    let streams = [on.stream()?, on.stream()?, on.stream()?];
    let held: [&dyn AsStream; 4] = [&DefaultStream, &streams[0], &streams[1], &streams[2]];
    for stream in held {
        let gate = on.hold(stream)?;
        blocks_until_released(&gate, || on.device.synchronize_device())?;
    }
    Ok(())
}

/// Begins to destroy a held stream. The call may wait for the stream's work, so another thread makes it.
fn close_held(stream: Stream) -> JoinHandle<Result<()>> {
    let closing = thread::spawn(move || stream.close());
    for _ in 0..CLOSING {
        if closing.is_finished() {
            break;
        }
        settle();
    }
    closing
}

/// Ends a destruction that [`close_held`] has begun, after the gate was released.
fn end_close(closing: JoinHandle<Result<()>>) -> Verdict {
    Ok(joined(closing.join(), "the destruction")??)
}

fn synchronize_device_waits_for_a_destroyed_stream(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    let gate = on.hold_warm(&stream)?;
    let closing = close_held(stream);
    if closing.is_finished() {
        blocks_until_released(&gate, || on.device.synchronize_device())?;
    }
    gate.release();
    end_close(closing)?;
    on.device.synchronize_device()?;
    ensure!(gate.has_passed(), "the work of the destroyed stream has not finished")
}

fn a_destroyed_one_finishes_its_work(on: &Subject) -> Verdict {
    let (area, stream, event) = (on.filled(64 * KIB, 1)?, on.stream()?, on.event()?);
    let gate = on.hold_warm(&stream)?;
    on.fill(area.span(), 7, &stream)?;
    event.record(&stream)?;
    let closing = close_held(stream);
    gate.release();
    end_close(closing)?;
    event.wait()?;
    on.device.synchronize_device()?;
    on.expect_byte(area.span(), 7, "what the destroyed stream was to write")
}

fn many_live_together(on: &Subject) -> Verdict {
    let area = on.filled(48 * 4 * KIB, 0)?;
    let streams = (0..48).map(|_| on.stream()).collect::<Result<Vec<_>>>()?;
    for (i, stream) in (0_u8..).zip(&streams) {
        on.fill(area.span().nth(i, 4 * KIB), i + 1, stream)?;
    }
    for stream in &streams {
        stream.synchronize()?;
    }
    on.expect_parts(area.span(), 4 * KIB, 1, "the part of one stream")
}

fn one_of_another_device_is_answered(on: &Subject) -> Verdict {
    let other = on.other_device()?;
    let foreign = Stream::create(Arc::clone(&other))?;
    let answer = on.synchronize(&foreign);
    if answer.is_err() {
        let kinds = [ErrorKind::InvalidHandle, ErrorKind::InvalidValue];
        refuse(answer, &kinds, "a stream of another device")?;
    }
    let area = on.filled(4 * KIB, 5)?;
    on.expect_byte(area.span(), 5, "memory of this device")?;
    let event = Event::create(Arc::clone(&other))?;
    event.record(&foreign)?;
    event.wait()?;
    other.synchronize_device()?;
    Ok(())
}
