//! Calls that name a stream which was destroyed, made in a child process because a driver may crash on them.

use cachette_hal::{CaptureMode, Device, ErrorKind, Result, Stream as RawStream, StreamRef};

use crate::rig::prelude::*;

cases! { destroyed_streams:
    /// No event is recorded in a destroyed stream, and it waits for none.
    take_no_events().with_child() = |on| in_child(on, "use_for_events");
    /// A destroyed stream is neither waited for nor destroyed again.
    are_not_waited_for_or_destroyed_again().with_child() = |on| in_child(on, "wait_and_destroy");
    /// Nothing is filled or copied in a destroyed stream.
    run_no_transfers(Transfer).with_child() = |on| in_child(on, "use_for_transfers");
    /// No host function is queued in a destroyed stream.
    run_no_host_functions(HostCalls).with_child() = |on| in_child(on, "use_for_host_functions");
    /// No memory is allocated or freed in the order of a destroyed stream.
    order_no_memory(StreamOrdered).with_child() = |on| in_child(on, "use_for_memory");
    /// A destroyed stream is in no capture, begins none and launches no graph.
    are_not_captured(Capture).with_child() = |on| in_child(on, "use_for_captures");
}

roles!(use_for_events, wait_and_destroy, use_for_transfers, use_for_host_functions, use_for_memory, use_for_captures);

fn in_child(on: &Subject, role: &str) -> Verdict {
    on.child(role, "", None).map(drop)
}

/// Returns the handle of a stream that was destroyed. No stream is created after it, which could get the same handle.
fn destroyed(on: &Subject) -> Verdict<StreamRef> {
    let stream = on.stream()?;
    let gone = stream.get();
    stream.close()?;
    Ok(gone)
}

/// Checks that every call was refused, and that the device continues.
fn all_refused(on: &Subject, calls: impl IntoIterator<Item = (&'static str, Result<()>)>) -> Verdict<String> {
    for (what, result) in calls {
        refuse(result, &[ErrorKind::InvalidHandle], what)?;
    }
    let (event, stream) = (on.event()?, on.stream()?);
    event.record(&stream)?;
    event.wait()?;
    on.device.synchronize_device()?;
    Ok(String::new())
}

fn use_for_events(on: &Subject, _: &str) -> Verdict<String> {
    let device = &on.device;
    let event = device.create_event()?;
    let gone = destroyed(on)?;
    // SAFETY: the contract documents the error for a destroyed stream.
    let recorded = unsafe { device.record(&event, gone) };
    // SAFETY: as above.
    let held_back = unsafe { device.stream_wait(gone, &event) };
    // SAFETY: 1. it was created above.
    unsafe { device.destroy_event(event) }?;
    all_refused(on, [("a record in a destroyed stream", recorded), ("a wait of a destroyed stream", held_back)])
}

fn wait_and_destroy(on: &Subject, _: &str) -> Verdict<String> {
    let (gone, device) = (destroyed(on)?, &on.device);
    // SAFETY: the contract documents the error for a destroyed stream.
    let waited = unsafe { device.synchronize(gone) };
    // SAFETY: as above.
    let again = unsafe { device.destroy_stream(RawStream::from_raw(gone.raw())) };
    all_refused(on, [("a wait for a destroyed stream", waited), ("a second destruction", again)])
}

fn use_for_transfers(on: &Subject, _: &str) -> Verdict<String> {
    let (area, mut host) = (on.filled(128, 1)?, [0_u8; 64]);
    let (transfer, from, to) = (on.device.transfer()?, area.ptr(), area.ptr().add(64));
    let gone = destroyed(on)?;
    // SAFETY: the contract documents the error for a destroyed stream. 3. The memory lives until the end.
    let filled = unsafe { transfer.fill(to, 2, 64, gone) };
    // SAFETY: as above.
    let copied = unsafe { transfer.copy(to, from, 64, gone) };
    // SAFETY: as above. 4. Nothing was queued if the call failed; otherwise the process ends soon.
    let uploaded = unsafe { transfer.upload(to, host.as_ptr(), 64, gone) };
    // SAFETY: as above.
    let downloaded = unsafe { transfer.download(host.as_mut_ptr(), from, 64, gone) };
    let calls = [("a fill", filled), ("a copy", copied), ("an upload", uploaded), ("a download", downloaded)];
    let answer = all_refused(on, calls)?;
    on.expect_byte(area.span(), 1, "memory that refused calls name")?;
    Ok(answer)
}

fn use_for_host_functions(on: &Subject, _: &str) -> Verdict<String> {
    let calls = on.device.host_calls()?;
    let gone = destroyed(on)?;
    // SAFETY: the contract documents the error for a destroyed stream.
    let queued = unsafe { calls.call_host(gone, Box::new(|| {})) };
    all_refused(on, [("a host function in a destroyed stream", queued)])
}

fn use_for_memory(on: &Subject, _: &str) -> Verdict<String> {
    let (live, pool) = (on.stream()?, on.device.stream_ordered()?);
    let block = on.pooled(4 * KIB, &live)?;
    let gone = destroyed(on)?;
    // SAFETY: the contract documents the error for a destroyed stream.
    let allocated = unsafe { pool.allocate_on(4 * KIB, gone) }.map(drop);
    // SAFETY: as above. 2. No work uses the block.
    let freed = unsafe { pool.free_on(block.ptr(), gone) };
    let answer = all_refused(on, [("an allocation", allocated), ("a free", freed)])?;
    block.free()?;
    Ok(answer)
}

fn use_for_captures(on: &Subject, _: &str) -> Verdict<String> {
    let (live, capture) = (on.stream()?, on.device.capture()?);
    // SAFETY: 1. the stream lives.
    unsafe { capture.begin_capture(live.get(), CaptureMode::Relaxed) }?;
    // SAFETY: 1. as above.
    let graph = unsafe { capture.end_capture(live.get()) }?;
    let gone = destroyed(on)?;
    // SAFETY: the contract documents the error for a destroyed stream.
    let status = unsafe { capture.capture_status(gone) }.map(drop);
    // SAFETY: as above.
    let frontier = unsafe { capture.frontier(gone, &mut Vec::new()) }.map(drop);
    // SAFETY: as above.
    let begun = unsafe { capture.begin_capture(gone, CaptureMode::Relaxed) };
    // SAFETY: as above.
    let ended = unsafe { capture.end_capture(gone) }.map(drop);
    // SAFETY: as above. The graph is empty.
    let launched = unsafe { capture.launch(&graph, gone) };
    // SAFETY: 1. it was created above, and does not run.
    unsafe { capture.destroy_graph(graph) }?;
    let calls = [("a query", status), ("a query of nodes", frontier), ("a capture", begun), ("its end", ended)];
    all_refused(on, calls.into_iter().chain([("a launch", launched)]))
}
