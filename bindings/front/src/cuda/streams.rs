//! Streams and their captures, by the calls of libcuda.

use std::ffi::{c_int, c_uint};

use super::{Answer, Calls, Handle, context, device_of, of_stream};
use crate::entry::Thread;
use crate::status::{Refusal, SUCCESS, Status};
use crate::streams::{self, Kind};
use crate::{captures, memory};

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
    let stop = |graph| unsafe { calls.cuStreamEndCapture(stream, graph) };
    // SAFETY: it is the graph that `stop` gave, which no other code has.
    let discard = |graph| unsafe { calls.cuGraphDestroy(graph) };
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
    let create = |object, pool, gone| unsafe { calls.cuUserObjectCreate(object, pool, gone, 1, captures::NO_SYNC) };
    // SAFETY: both handles are live, and the graph takes the only reference.
    let retain = |graph, object| unsafe { calls.cuGraphRetainUserObject(graph, object, 1, captures::MOVE) };
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
    let context = context(calls)?;
    // Another context takes its streams with it.
    let kind = Kind { device: device_of(calls, context)?, flags, priority };
    // SAFETY: 1. it is not null, and otherwise the caller's promise.
    unsafe { streams::create(stream, kind, |kept| is_idle(calls, kept), create) }
}

/// Whether a stream that the front keeps has no work and is not captured.
fn is_idle(calls: &Calls, stream: Handle) -> bool {
    let mut mode = captures::RELAXED;
    // SAFETY: the driver reads and writes one number.
    let exchanged = unsafe { calls.cuThreadExchangeStreamCaptureMode(&raw mut mode) } == SUCCESS;
    // SAFETY: the stream lives.
    let is_idle = !is_captured(calls, stream) && unsafe { calls.cuStreamQuery(stream) } == SUCCESS;
    if exchanged {
        // SAFETY: as above.
        let _ = unsafe { calls.cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    }
    is_idle
}

/// Whether a stream is captured; it may be if the driver does not tell.
fn is_captured(calls: &Calls, stream: Handle) -> bool {
    let mut captured = 0;
    // SAFETY: the stream lives, and the driver writes one number.
    unsafe { calls.cuStreamIsCapturing(stream, &raw mut captured) != SUCCESS || captured != 0 }
}

/// Keeps a stream that the program destroys.
pub(super) fn destroy_stream(calls: &Calls, stream: Handle) -> Answer {
    let Ok(named) = memory::stream(stream) else { return Err(Refusal::Driver) };
    let end_capture = || {
        if is_captured(calls, stream) {
            // SAFETY: the driver writes one handle.
            let stop = |graph| unsafe { calls.cuStreamEndCapture(stream, graph) };
            // SAFETY: it is the graph that `stop` gave, which no other code has.
            captures::cancel(named, stop, |graph| unsafe { calls.cuGraphDestroy(graph) });
        }
    };
    streams::destroy(stream, end_capture).inspect_err(|refusal| captures::stream_ends(named, *refusal))
}
