//! Rows about captures.

use std::ffi::c_int;

use cachette_hal_hip::types::{Status, StreamHandle};

use crate::calls::{destroy_event, event, query};
use crate::hip::{Hip, call};

pub(crate) const ROWS: &[super::Row] = &[
    ("a_broken_capture_stays_on_its_streams", broken_stays),
    ("an_unjoined_capture_stays_on_its_streams", unjoined_stays),
    ("destroying_the_origin_frees_the_others", origin_destroyed),
    ("an_event_of_a_stream_that_is_captured_since", event_before_capture),
];

pub(crate) fn begin_as(hip: &Hip, stream: StreamHandle, mode: c_int) -> Status {
    call!(hip.capture.hipStreamBeginCapture(stream, mode))
}

pub(crate) fn end(hip: &Hip, stream: StreamHandle) -> Status {
    let mut graph = 0;
    let status = call!(hip.capture.hipStreamEndCapture(stream, &raw mut graph));
    if status == 0 {
        assert_eq!(call!(hip.capture.hipGraphDestroy(graph)), 0);
    }
    status
}

fn state(hip: &Hip, stream: StreamHandle) -> c_int {
    let mut found = -1;
    assert_eq!(call!(hip.extra.is_capturing(stream, &raw mut found)), 0);
    found
}

/// Fills memory in a stream.
pub(crate) fn fill(hip: &Hip, at: u64, stream: StreamHandle) -> Status {
    call!(hip.transfer.hipMemsetAsync(at, 1, 64, stream))
}

/// Makes a stream join the capture of another.
fn join(hip: &Hip, origin: StreamHandle, joined: StreamHandle) {
    let event = event(hip);
    assert_eq!(call!(hip.core.hipEventRecord(event, origin)), 0);
    assert_eq!(call!(hip.core.hipStreamWaitEvent(joined, event, 0)), 0);
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

/// Checks that nothing can be done with both streams, then takes the capture off them.
fn take_off(hip: &Hip, origin: StreamHandle, other: StreamHandle, at: u64) {
    for stream in [origin, other] {
        assert_eq!(fill(hip, at, stream), 901, "work");
        assert_eq!(hip.synchronize(stream), 900, "a wait");
    }
    assert_eq!(state(hip, origin), 2, "the wait has broken it");
    assert_eq!(begin_as(hip, origin, 2), 0);
    assert_eq!(end(hip, origin), 0);
    for stream in [origin, other] {
        assert_eq!(state(hip, stream), 0);
        assert_eq!(fill(hip, at, stream), 0);
        assert_eq!(hip.synchronize(stream), 0);
        hip.destroy_stream(stream);
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
    take_off(hip, origin, joined, at);
}

fn unjoined_stays(hip: &Hip) {
    let (origin, stray, at) = fork(hip);
    assert_eq!(end(hip, origin), 904);
    assert_eq!(state(hip, origin), 1, "it is still active");
    assert_eq!(begin_as(hip, origin, 2), 401);
    take_off(hip, origin, stray, at);
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

fn event_before_capture(hip: &Hip) {
    let (stream, event) = (hip.stream(), event(hip));
    assert_eq!(call!(hip.core.hipEventRecord(event, stream)), 0);
    assert_eq!(hip.synchronize(stream), 0);
    // 2 is the relaxed mode.
    assert_eq!(begin_as(hip, stream, 2), 0);
    assert_eq!(query(hip, event), hip.seen([907, 907, 0]));
    assert_eq!(end(hip, stream), hip.seen([901, 901, 0]));
    hip.destroy_stream(stream);
    destroy_event(hip, event);
}
