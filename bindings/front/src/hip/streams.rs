//! Streams and their captures, by the calls of libamdhip64.

use std::ffi::{c_int, c_uint};
use std::ptr;

use super::{Answer, Calls, Handle, device, of_stream};
use crate::entry::Thread;
use crate::last_error::quietly;
use crate::status::{Refusal, SUCCESS, Status};
use crate::streams::{self, Kind};
use crate::{captures, memory};

/// States of a stream's capture.
const IDLE: c_uint = 0;
const ACTIVE: c_uint = 1;

/// Begins a capture by `begin`, and leads its requests to a pool.
///
/// # Safety
///
/// 1. `stream` is a live stream.
pub(super) unsafe fn begin_capture(
    thread: &Thread,
    calls: &Calls,
    stream: Handle,
    begin: impl FnOnce() -> Status,
) -> Answer {
    let captured = memory::stream(stream)?;
    let served = of_stream(thread, calls, captured)?;
    // SAFETY: the driver writes one handle.
    let stop = |graph| quietly(calls, || unsafe { calls.hipStreamEndCapture(stream, graph) });
    // SAFETY: it is the graph that `stop` gave, which no other code has.
    let discard = |graph| quietly(calls, || unsafe { calls.hipGraphDestroy(graph) });
    // SAFETY: 1. is the caller's promise.
    unsafe { captures::begin_by(served, captured, begin, stop, discard) }
}

/// Ends a capture by `end`, and ties its pool to the graph.
///
/// # Safety
///
/// 1. `graph` is null or valid for reading and writing.
pub(super) unsafe fn end_capture(
    calls: &Calls,
    stream: Handle,
    graph: *mut Handle,
    end: impl FnOnce() -> Status,
) -> Answer {
    let captured = memory::stream(stream)?;
    // SAFETY: the driver writes one handle; the destructor takes the pool.
    let make = |object, pool, gone| unsafe { calls.hipUserObjectCreate(object, pool, gone, 1, captures::NO_SYNC) };
    let create = |object, pool, gone| quietly(calls, || make(object, pool, gone));
    // SAFETY: both handles are live, and the graph takes the only reference.
    let give = |graph, object| unsafe { calls.hipGraphRetainUserObject(graph, object, 1, captures::MOVE) };
    let retain = |graph, object| quietly(calls, || give(graph, object));
    // SAFETY: 1. is the caller's promise.
    unsafe { captures::end_by(captured, graph, end, create, retain) }
}

/// Creates a stream by `create`, or gives a kept one.
///
/// # Safety
///
/// 1. `stream` is null or valid for writing.
pub(super) unsafe fn create_stream(
    calls: &Calls,
    stream: *mut Handle,
    flags: c_uint,
    priority: c_int,
    create: impl FnOnce() -> Status,
) -> Answer {
    if stream.is_null() {
        return Err(Refusal::Driver);
    }
    let kind = Kind { device: device(calls)?, flags, priority };
    // SAFETY: 1. it is not null, and otherwise the caller's promise.
    unsafe { streams::create(stream, kind, |kept| is_idle(calls, kept), create) }
}

/// Whether a stream that the front keeps has no work and is not captured.
fn is_idle(calls: &Calls, stream: Handle) -> bool {
    // SAFETY: the stream lives.
    let query = || unsafe { calls.hipStreamQuery(stream) };
    relaxed(calls, || capture_status(calls, stream) == Some(IDLE) && quietly(calls, query) == SUCCESS)
}

/// Does something in relaxed mode, in which this thread breaks no capture.
fn relaxed<T>(calls: &Calls, act: impl FnOnce() -> T) -> T {
    let mut mode = captures::RELAXED;
    // SAFETY: the driver reads and writes one number.
    let mut exchange = || quietly(calls, || unsafe { calls.hipThreadExchangeStreamCaptureMode(&raw mut mode) });
    let is_exchanged = exchange() == SUCCESS;
    let acted = act();
    if is_exchanged {
        exchange();
    }
    acted
}

/// The state of a stream's capture, if the driver tells.
fn capture_status(calls: &Calls, stream: Handle) -> Option<c_uint> {
    let mut status = 0;
    // SAFETY: the driver writes one number.
    let ask = || unsafe { calls.hipStreamIsCapturing(stream, &raw mut status) };
    (quietly(calls, ask) == SUCCESS).then_some(status)
}

/// Takes a capture off a stream that it was left on. The end of a second capture frees all streams of the first.
fn detach(calls: &Calls, stream: Handle) {
    relaxed(calls, || {
        if capture_status(calls, stream) == Some(ACTIVE) {
            // Not all streams were joined. A wait is forbidden, and breaks the capture.
            // SAFETY: the stream lives.
            quietly(calls, || unsafe { calls.hipStreamSynchronize(stream) });
        }
        let mut graph = ptr::null_mut();
        // SAFETY: the stream lives.
        let begin = || unsafe { calls.hipStreamBeginCapture(stream, captures::RELAXED) };
        // SAFETY: the driver writes one handle.
        let end = || unsafe { calls.hipStreamEndCapture(stream, &raw mut graph) };
        if quietly(calls, begin) == SUCCESS && quietly(calls, end) == SUCCESS {
            // SAFETY: it was made above.
            quietly(calls, || unsafe { calls.hipGraphDestroy(graph) });
        }
    });
}

/// Keeps a stream that the program destroys.
pub(super) fn destroy_stream(calls: &Calls, stream: Handle) -> Answer {
    let Ok(named) = memory::stream(stream) else { return Err(Refusal::Driver) };
    let end_capture = || {
        if capture_status(calls, stream) == Some(IDLE) {
            return;
        }
        // SAFETY: the driver writes one handle.
        let stop = |graph| quietly(calls, || unsafe { calls.hipStreamEndCapture(stream, graph) });
        // SAFETY: it is the graph that `stop` gave, which no other code has.
        let discard = |graph| quietly(calls, || unsafe { calls.hipGraphDestroy(graph) });
        let may_be_left = captures::cancel(named, stop, discard);
        if may_be_left && capture_status(calls, stream) != Some(IDLE) {
            detach(calls, stream);
        }
    };
    streams::destroy(stream, end_capture).inspect_err(|refusal| captures::stream_ends(named, *refusal))
}
