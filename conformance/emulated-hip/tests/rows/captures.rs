//! Rows about captures.

use std::ffi::c_int;
use std::ptr;

use cachette_hal_hip::symbols::CaptureCalls;
use cachette_hal_hip::types::{Status, StreamHandle};

use crate::calls::{destroy_event, event, query};
use crate::hip::Hip;

pub(crate) const ROWS: &[super::Row] = &[
    ("allocating_breaks_a_capture", allocating_in_capture),
    ("a_broken_capture_stays_on_its_streams", broken_stays),
    ("an_unjoined_capture_stays_on_its_streams", unjoined_stays),
    ("a_joined_stream_breaks_it_in_silence", broken_by_joined),
    ("destroying_the_origin_frees_the_others", origin_destroyed),
    ("a_relaxed_thread_does_as_it_likes", relaxed),
    ("the_default_stream_is_not_captured", default_stream),
    ("querying_a_captured_stream", query_in_capture),
    ("a_captured_event_has_a_status_for_itself", captured_event),
    ("an_event_of_a_stream_that_is_captured_since", event_before_capture),
    ("a_copy_that_waits_is_implicit", copy_in_capture),
    ("no_graph_is_an_invalid_value", no_graph),
];

fn captures(hip: &Hip) -> &CaptureCalls {
    hip.symbols.capture.as_ref().expect("it has every function")
}

/// Begins a capture in the global mode.
fn begin(hip: &Hip, stream: StreamHandle) {
    assert_eq!(begin_as(hip, stream, 0), 0);
}

pub(crate) fn begin_as(hip: &Hip, stream: StreamHandle, mode: c_int) -> Status {
    // SAFETY: the stream lives.
    unsafe { (captures(hip).hipStreamBeginCapture)(stream, mode) }
}

pub(crate) fn end(hip: &Hip, stream: StreamHandle) -> Status {
    let mut graph = 0;
    // SAFETY: the stream lives, and the out-parameter outlives the call.
    let status = unsafe { (captures(hip).hipStreamEndCapture)(stream, &raw mut graph) };
    if status == 0 {
        // SAFETY: the graph was made just now.
        assert_eq!(unsafe { (captures(hip).hipGraphDestroy)(graph) }, 0);
    }
    status
}

fn allocating_in_capture(hip: &Hip) {
    let stream = hip.stream();
    begin(hip, stream);
    let mut at = 0;
    // SAFETY: the out-parameter outlives the call.
    let status = unsafe { (hip.symbols.core.hipMalloc)(&raw mut at, 4096) };
    assert_eq!(status, 900);
    assert_eq!(end(hip, stream), 901);
    hip.destroy_stream(stream);
}

fn state(hip: &Hip, stream: StreamHandle) -> c_int {
    let mut found = -1;
    // SAFETY: the stream lives, and the out-parameter outlives the call.
    let status = unsafe { (hip.extra.is_capturing)(stream, &raw mut found) };
    assert_eq!(status, 0);
    found
}

/// Fills memory in a stream.
pub(crate) fn fill(hip: &Hip, at: u64, stream: StreamHandle) -> Status {
    let transfer = hip.symbols.transfer.as_ref();
    let transfer = transfer.expect("it has every function");
    // SAFETY: the stream lives, and so does the memory until the row has waited.
    unsafe { (transfer.hipMemsetAsync)(at, 1, 64, stream) }
}

/// Makes a stream join the capture of another.
fn join(hip: &Hip, origin: StreamHandle, joined: StreamHandle) {
    let (event, core) = (event(hip), &hip.symbols.core);
    // SAFETY: both live.
    assert_eq!(unsafe { (core.hipEventRecord)(event, origin) }, 0);
    // SAFETY: both live.
    assert_eq!(unsafe { (core.hipStreamWaitEvent)(joined, event, 0) }, 0);
    destroy_event(hip, event);
}

/// Makes a capture with a second stream; both streams, and memory that the second has filled in it.
fn fork(hip: &Hip) -> (StreamHandle, StreamHandle, u64) {
    let (origin, joined, at) = (hip.stream(), hip.stream(), hip.malloc(64));
    assert_eq!(begin_as(hip, origin, 2), 0);
    join(hip, origin, joined);
    assert_eq!(fill(hip, at, joined), 0);
    (origin, joined, at)
}

/// Checks that nothing can be done with a stream, then takes the capture off it and the others.
fn take_off(hip: &Hip, origin: StreamHandle, others: &[StreamHandle], at: u64) {
    for stream in [origin].iter().chain(others) {
        assert_eq!(fill(hip, at, *stream), 901, "work");
        assert_eq!(hip.synchronize(*stream), 900, "a wait");
    }
    assert_eq!(state(hip, origin), 2, "the wait has broken it");
    assert_eq!(begin_as(hip, origin, 2), 0);
    assert_eq!(end(hip, origin), 0);
    for stream in [origin].iter().chain(others) {
        assert_eq!(state(hip, *stream), 0);
        assert_eq!(fill(hip, at, *stream), 0);
        assert_eq!(hip.synchronize(*stream), 0);
        hip.destroy_stream(*stream);
    }
    hip.free(at);
}

fn broken_stays(hip: &Hip) {
    let (origin, joined, at) = fork(hip);
    join(hip, joined, origin);
    assert_eq!(hip.synchronize(origin), 900);
    assert_eq!(state(hip, origin), 2);
    assert_eq!(end(hip, joined), 903, "it was begun on the other");
    assert_eq!(end(hip, origin), 901);
    assert_eq!(state(hip, origin), 2);
    take_off(hip, origin, &[joined], at);
}

fn unjoined_stays(hip: &Hip) {
    let (origin, stray, at) = fork(hip);
    assert_eq!(end(hip, origin), 904);
    assert_eq!(state(hip, origin), 1, "it is still active");
    assert_eq!(begin_as(hip, origin, 2), 401);
    take_off(hip, origin, &[stray], at);
}

fn broken_by_joined(hip: &Hip) {
    let (origin, joined, at) = fork(hip);
    assert_eq!(hip.synchronize(joined), 900);
    assert_eq!((state(hip, origin), state(hip, joined)), (1, 2));
    assert_eq!(end(hip, origin), 904);
    assert_eq!(state(hip, origin), 1);
    take_off(hip, origin, &[joined], at);
}

fn origin_destroyed(hip: &Hip) {
    let (origin, stray, at) = fork(hip);
    assert_eq!(end(hip, origin), 904);
    hip.destroy_stream(origin);
    assert_eq!(fill(hip, at, stray), 0);
    assert_eq!(hip.synchronize(stray), 0);
    hip.destroy_stream(stray);
    hip.free(at);
}

fn exchange(hip: &Hip, mode: c_int) -> c_int {
    let mut mode = mode;
    // SAFETY: the parameter outlives the call.
    let status = unsafe { (captures(hip).hipThreadExchangeStreamCaptureMode)(&raw mut mode) };
    assert_eq!(status, 0);
    mode
}

fn relaxed(hip: &Hip) {
    let (stream, other, event) = (hip.stream(), hip.stream(), event(hip));
    begin(hip, stream);
    assert_eq!(exchange(hip, 2), 0, "the mode before comes back in place");
    hip.free(hip.malloc(4096));
    hip.destroy(hip.create(2 << 20));
    let host = hip.symbols.host_memory.as_ref().expect("it has every function");
    let mut at = ptr::null_mut();
    // SAFETY: the out-parameter outlives the call.
    assert_eq!(unsafe { (host.hipHostMalloc)(&raw mut at, 4096, 0) }, 0);
    // SAFETY: it was allocated just now.
    assert_eq!(unsafe { (host.hipHostFree)(at) }, 0);
    let pool = hip.symbols.stream_ordered.as_ref().expect("it has every function");
    let (mut default, mut pooled) = (0, 0);
    // SAFETY: the out-parameter outlives the call.
    let status = unsafe { (pool.hipDeviceGetDefaultMemPool)(&raw mut default, 0) };
    assert_eq!(status, 0);
    // SAFETY: the stream and the pool live, and the out-parameter outlives the call.
    let status = unsafe { (pool.hipMallocFromPoolAsync)(&raw mut pooled, 4096, default, other) };
    assert_eq!(status, 0);
    // SAFETY: it was allocated just now, in this stream.
    assert_eq!(unsafe { (pool.hipFreeAsync)(pooled, other) }, 0);
    assert_eq!(query(hip, event), 0);
    assert_eq!(exchange(hip, 0), 2);
    assert_eq!(end(hip, stream), 0, "the capture has survived all that");
    destroy_event(hip, event);
    hip.destroy_stream(stream);
    hip.destroy_stream(other);
}

fn default_stream(hip: &Hip) {
    let stream = hip.stream();
    begin(hip, stream);
    for (asked, promised) in [(0, 0), (stream, 1)] {
        let mut found = -1;
        // SAFETY: the stream lives, and the out-parameter outlives the call.
        let status = unsafe { (hip.extra.is_capturing)(asked, &raw mut found) };
        assert_eq!((status, found), (0, promised));
    }
    // SAFETY: the default stream always lives.
    assert_eq!(unsafe { (captures(hip).hipStreamBeginCapture)(0, 0) }, 900);
    assert_eq!(end(hip, stream), 0);
    hip.destroy_stream(stream);
}

fn query_in_capture(hip: &Hip) {
    let stream = hip.stream();
    // SAFETY: the stream lives.
    assert_eq!(unsafe { (hip.extra.query)(stream) }, 0);
    begin(hip, stream);
    // SAFETY: the stream lives.
    assert_eq!(unsafe { (hip.extra.query)(stream) }, 900);
    end(hip, stream);
    hip.destroy_stream(stream);
}

fn captured_event(hip: &Hip) {
    let (stream, event) = (hip.stream(), event(hip));
    begin(hip, stream);
    // SAFETY: both live.
    assert_eq!(unsafe { (hip.symbols.core.hipEventRecord)(event, stream) }, 0);
    assert_eq!(query(hip, event), 907);
    assert_eq!(end(hip, stream), 901);
    hip.destroy_stream(stream);
    destroy_event(hip, event);
}

fn event_before_capture(hip: &Hip) {
    let (stream, event) = (hip.stream(), event(hip));
    // SAFETY: both live.
    assert_eq!(unsafe { (hip.symbols.core.hipEventRecord)(event, stream) }, 0);
    assert_eq!(hip.synchronize(stream), 0);
    // 2 is the relaxed mode.
    assert_eq!(begin_as(hip, stream, 2), 0);
    assert_eq!(query(hip, event), hip.seen([907, 907, 0]));
    assert_eq!(end(hip, stream), hip.seen([901, 901, 0]));
    hip.destroy_stream(stream);
    destroy_event(hip, event);
}

fn copy_in_capture(hip: &Hip) {
    let (stream, from, mut to) = (hip.stream(), [1_u8; 8], [0_u8; 8]);
    begin(hip, stream);
    // SAFETY: the arrays are as long as they say.
    let status = unsafe { (hip.extra.copy)(to.as_mut_ptr().cast(), from.as_ptr().cast(), 8, 0) };
    assert_eq!(status, 906);
    assert_eq!(end(hip, stream), 0);
    hip.destroy_stream(stream);
}

fn no_graph(hip: &Hip) {
    // SAFETY: the library refuses null.
    assert_eq!(unsafe { (captures(hip).hipGraphLaunch)(0, 0) }, 1);
    // SAFETY: the library refuses null.
    assert_eq!(unsafe { (captures(hip).hipGraphExecDestroy)(0) }, 1);
}
