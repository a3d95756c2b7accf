//! Rows about memory, errors, events, captures and peers.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Condvar, Mutex, PoisonError};

use cachette_hal_hip::symbols::CaptureSymbols;
use cachette_hal_hip::types::{EventHandle, Status, StreamHandle};

use crate::hip::Hip;

pub(crate) const ROWS: &[super::Row] = &[
    ("no_bytes_are_null", no_bytes),
    ("freeing_null_in_stream_order", free_null),
    ("a_pending_event_and_the_last_error", pending_event),
    (
        "an_event_that_was_never_recorded_has_passed",
        unrecorded_event,
    ),
    ("a_null_event_is_an_invalid_handle", null_event),
    ("an_unknown_stream_is_a_destroyed_context", unknown_stream),
    ("allocating_breaks_a_capture", allocating_in_capture),
    ("a_relaxed_thread_does_as_it_likes", relaxed),
    ("the_default_stream_is_not_captured", default_stream),
    ("querying_a_captured_stream", query_in_capture),
    ("a_device_and_itself", own_peer),
    ("peers_enabled_twice", peers_twice),
];

/// A point at which a stream is held by a host function.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

unsafe extern "C" fn pass(gate: *mut c_void) {
    // SAFETY: rows pass a gate that outlives the stream's wait for it.
    let gate = unsafe { &*gate.cast::<Gate>() };
    let open = gate.open.lock().unwrap_or_else(PoisonError::into_inner);
    drop(gate.opened.wait_while(open, |open| !*open));
}

impl Gate {
    fn hold(&self, hip: &Hip, stream: StreamHandle) {
        let calls = hip
            .symbols
            .host_calls
            .as_ref()
            .expect("it has every function");
        let data = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the caller keeps the gate until the stream has passed it.
        let status = unsafe { (calls.hipLaunchHostFunc)(stream, Some(pass), data) };
        assert_eq!(status, 0);
    }

    fn release(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }
}

fn no_bytes(hip: &Hip) {
    assert_eq!(hip.malloc(0), 0);
    hip.free(0);
}

fn free_null(hip: &Hip) {
    let pool = hip
        .symbols
        .stream_ordered
        .as_ref()
        .expect("it has every function");
    // SAFETY: there is nothing to free.
    let status = unsafe { (pool.hipFreeAsync)(0, 0) };
    assert_eq!(status, hip.seen([1, 0, 0]));
}

fn event(hip: &Hip) -> EventHandle {
    let mut event = 0;
    // SAFETY: the out-parameter outlives the call.
    let status = unsafe { (hip.symbols.core.hipEventCreateWithFlags)(&raw mut event, 2) };
    assert_eq!(status, 0);
    event
}

fn query(hip: &Hip, event: EventHandle) -> Status {
    // SAFETY: the library checks it.
    unsafe { (hip.symbols.core.hipEventQuery)(event) }
}

fn destroy_event(hip: &Hip, event: EventHandle) {
    // SAFETY: rows destroy what they created, once.
    assert_eq!(unsafe { (hip.symbols.core.hipEventDestroy)(event) }, 0);
}

fn peek(hip: &Hip) -> Status {
    // SAFETY: it takes nothing.
    unsafe { (hip.extra.peek)() }
}

fn take_last_error(hip: &Hip) -> Status {
    // SAFETY: it takes nothing.
    unsafe { (hip.symbols.core.hipGetLastError)() }
}

fn pending_event(hip: &Hip) {
    let (gate, stream, event) = (Gate::default(), hip.stream(), event(hip));
    gate.hold(hip, stream);
    // SAFETY: both live.
    let status = unsafe { (hip.symbols.core.hipEventRecord)(event, stream) };
    assert_eq!(status, 0);
    take_last_error(hip);
    assert_eq!(query(hip, event), 600);
    assert_eq!(peek(hip), hip.seen([600, 0, 0]), "the last error after it");
    assert_eq!(take_last_error(hip), hip.seen([600, 0, 0]));
    assert_eq!(peek(hip), 0);
    gate.release();
    assert_eq!(hip.synchronize(stream), 0);
    assert_eq!(query(hip, event), 0);
    destroy_event(hip, event);
    hip.destroy_stream(stream);
}

fn unrecorded_event(hip: &Hip) {
    let event = event(hip);
    assert_eq!(query(hip, event), 0);
    destroy_event(hip, event);
}

fn null_event(hip: &Hip) {
    assert_eq!(query(hip, 0), 400);
    take_last_error(hip);
}

fn unknown_stream(hip: &Hip) {
    assert_eq!(hip.synchronize(0x1234_5678), 709);
    take_last_error(hip);
}

fn captures(hip: &Hip) -> &CaptureSymbols {
    hip.symbols.capture.as_ref().expect("it has every function")
}

fn begin(hip: &Hip, stream: StreamHandle) {
    // SAFETY: the stream lives. 0 is the global mode.
    let status = unsafe { (captures(hip).hipStreamBeginCapture)(stream, 0) };
    assert_eq!(status, 0);
}

fn end(hip: &Hip, stream: StreamHandle) -> Status {
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
    assert_eq!(end(hip, stream), 401, "it is over");
    hip.destroy_stream(stream);
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
    let host = hip
        .symbols
        .host_memory
        .as_ref()
        .expect("it has every function");
    let mut at = ptr::null_mut();
    // SAFETY: the out-parameter outlives the call.
    assert_eq!(unsafe { (host.hipHostMalloc)(&raw mut at, 4096, 0) }, 0);
    // SAFETY: it was allocated just now.
    assert_eq!(unsafe { (host.hipHostFree)(at) }, 0);
    let pool = hip
        .symbols
        .stream_ordered
        .as_ref()
        .expect("it has every function");
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

fn own_peer(hip: &Hip) {
    let peers = hip
        .symbols
        .peer_access
        .as_ref()
        .expect("it has every function");
    let mut can = -1;
    // SAFETY: the out-parameter outlives the call.
    let status = unsafe { (peers.hipDeviceCanAccessPeer)(&raw mut can, 0, 0) };
    assert_eq!(status, 0);
    assert_eq!(can, 0);
    hip.set_device(0);
    // SAFETY: it takes numbers alone.
    assert_eq!(unsafe { (peers.hipDeviceEnablePeerAccess)(0, 0) }, 101);
}

fn peers_twice(hip: &Hip) {
    let peers = hip
        .symbols
        .peer_access
        .as_ref()
        .expect("it has every function");
    hip.set_device(0);
    for promised in [0, 704] {
        // SAFETY: it takes numbers alone.
        assert_eq!(unsafe { (peers.hipDeviceEnablePeerAccess)(1, 0) }, promised);
    }
    for promised in [0, 705] {
        // SAFETY: it takes numbers alone.
        assert_eq!(unsafe { (peers.hipDeviceDisablePeerAccess)(1) }, promised);
    }
}
