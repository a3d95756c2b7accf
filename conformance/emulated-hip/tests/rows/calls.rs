//! Rows about memory, errors, events and peers.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, Scope};

use cachette_hal_hip::types::{EventHandle, Status, StreamHandle};
use cachette_hal_testing::Watched;

use crate::captures::begin_as;
use crate::hip::{Hip, call};

pub(crate) const ROWS: &[super::Row] = &[
    ("no_bytes_and_null", no_bytes),
    ("a_pending_event_and_the_last_error", pending_event),
    ("a_destroyed_stream_and_calls_that_do_not_crash", destroyed_stream),
    ("destroying_a_stream_waits_for_its_work", destroy_waits),
    ("calls_for_memory_while_a_stream_is_busy", busy_streams),
    ("a_query_blocks_while_a_thread_waits_for_the_event", query_while_waiting),
];

unsafe extern "C" fn pass(open: *mut c_void) {
    // SAFETY: rows pass a gate that outlives the stream's wait for it.
    let open = unsafe { &*open.cast::<AtomicBool>() };
    while !open.load(Ordering::Acquire) {
        thread::yield_now();
    }
}

/// Holds a stream until the gate is set, which must outlive that.
fn hold(hip: &Hip, stream: StreamHandle, gate: &AtomicBool) {
    let gate = ptr::from_ref(gate).cast_mut().cast();
    assert_eq!(call!(hip.host_calls.hipLaunchHostFunc(stream, Some(pass), gate)), 0);
}

/// Makes a call on another thread, and returns whether it blocks.
fn is_blocked_in<'a>(scope: &'a Scope<'a, '_>, call: impl FnOnce() + Send + 'a) -> bool {
    let (watch, watched) = mpsc::channel();
    scope.spawn(move || {
        watch.send(Watched::current()).expect("the test waits for it");
        call();
    });
    watched.recv().expect("the thread begins").is_blocked()
}

fn no_bytes(hip: &Hip) {
    assert_eq!(hip.malloc(0), 0);
    hip.free(0);
    assert_eq!(call!(hip.stream_ordered.hipFreeAsync(0, 0)), hip.seen([1, 0, 0]));
}

pub(crate) fn event(hip: &Hip) -> EventHandle {
    let mut event = 0;
    assert_eq!(call!(hip.core.hipEventCreateWithFlags(&raw mut event, 2)), 0);
    event
}

pub(crate) fn query(hip: &Hip, event: EventHandle) -> Status {
    call!(hip.core.hipEventQuery(event))
}

pub(crate) fn destroy_event(hip: &Hip, event: EventHandle) {
    assert_eq!(call!(hip.core.hipEventDestroy(event)), 0);
}

fn take_last_error(hip: &Hip) -> Status {
    call!(hip.core.hipGetLastError())
}

fn pending_event(hip: &Hip) {
    let (gate, stream, event) = (AtomicBool::new(false), hip.stream(), event(hip));
    hold(hip, stream, &gate);
    assert_eq!(call!(hip.core.hipEventRecord(event, stream)), 0);
    take_last_error(hip);
    assert_eq!(query(hip, event), 600);
    assert_eq!(call!(hip.extra.peek()), hip.seen([600, 0, 0]), "the last error after it");
    assert_eq!(take_last_error(hip), hip.seen([600, 0, 0]));
    assert_eq!(call!(hip.extra.peek()), 0);
    gate.store(true, Ordering::Release);
    assert_eq!(hip.synchronize(stream), 0);
    assert_eq!(query(hip, event), 0);
    destroy_event(hip, event);
    hip.destroy_stream(stream);
}

fn query_while_waiting(hip: &Hip) {
    let (gate, stream, event) = (AtomicBool::new(false), hip.stream(), event(hip));
    hold(hip, stream, &gate);
    assert_eq!(call!(hip.core.hipEventRecord(event, stream)), 0);
    thread::scope(|scope| {
        let waits = is_blocked_in(scope, || assert_eq!(call!(hip.extra.wait(event)), 0));
        let queries = is_blocked_in(scope, || assert_eq!(query(hip, event), 0, "it answers when the wait is over"));
        let of_stream = call!(hip.extra.query(stream));
        gate.store(true, Ordering::Release);
        assert!(waits && queries, "the query did not block");
        assert_eq!(of_stream, 600, "a query of the stream does not block");
    });
    destroy_event(hip, event);
    hip.destroy_stream(stream);
}

fn destroyed_stream(hip: &Hip) {
    let stream = hip.destroyed_stream();
    let (mut state, mut device, mut at, mut flags, none) = (-1, -1, 0, 9, ptr::null_mut::<c_void>());
    let (s, none) = (&raw mut state, none.cast());
    let info = call!(hip.capture.hipStreamGetCaptureInfo_v2(stream, s, none, none.cast(), none.cast(), none.cast()));
    let of_device = call!(hip.extra.device_of(stream, &raw mut device));
    assert_eq!([info, of_device], [709; 2], "calls that look the stream up");
    let capturing = call!(hip.extra.is_capturing(stream, s));
    let allocated = call!(hip.extra.malloc_async(&raw mut at, 64, stream));
    let destroyed = call!(hip.core.hipStreamDestroy(stream));
    let kind = call!(hip.extra.flags(stream, &raw mut flags));
    let found = [capturing, hip.synchronize(stream), allocated, begin_as(hip, stream, 2), destroyed, kind];
    assert_eq!(found, hip.seen([[709, 709, 400, 709, 709, 709], [0; 6], [0; 6]]), "calls that do not, since 7.0");
    if allocated == 0 {
        hip.free(at);
    }
    take_last_error(hip);
}

fn destroy_waits(hip: &Hip) {
    let (gate, stream) = (AtomicBool::new(false), hip.stream());
    hold(hip, stream, &gate);
    thread::scope(|scope| {
        let waits = is_blocked_in(scope, || hip.destroy_stream(stream));
        gate.store(true, Ordering::Release);
        assert!(waits, "the stream was destroyed while its work ran");
    });
}

/// Asserts which calls for memory return only after the work of a stream, in order: map, unmap, free, and all others.
fn assert_waits(hip: &Hip, stream: StreamHandle, promised: [bool; 4]) {
    const CHUNK: u64 = 2 << 20;
    let [mapped, unmapped] = [(); 2].map(|()| hip.reserve(CHUNK, 0).expect("there are addresses"));
    let (plain, handles) = (hip.malloc(CHUNK), [hip.create(CHUNK), hip.create(CHUNK)]);
    assert_eq!(hip.map(mapped, CHUNK, handles[0]), 0);
    let others = || {
        assert_eq!(hip.grant(mapped, CHUNK), 0);
        let at = hip.reserve(CHUNK, 0).expect("there are addresses");
        hip.destroy(hip.create(CHUNK));
        assert_eq!(hip.release(at, CHUNK), 0);
    };
    let map = || assert_eq!(hip.map(unmapped, CHUNK, handles[1]), 0);
    let unmap = || assert_eq!(hip.unmap(unmapped, CHUNK), 0);
    let free = || hip.free(plain);
    let calls: [(&str, &(dyn Fn() + Sync)); 4] =
        [("map", &map), ("unmap", &unmap), ("free", &free), ("others", &others)];
    for ((name, call), waits) in calls.into_iter().zip(promised) {
        let open = AtomicBool::new(false);
        hold(hip, stream, &open);
        thread::scope(|scope| {
            let blocked = is_blocked_in(scope, call);
            open.store(true, Ordering::Release);
            assert_eq!(blocked, waits, "{name} waits");
        });
        // The stream has passed the gate before that goes.
        assert_eq!(hip.synchronize(stream), 0);
    }
    assert_eq!(hip.unmap(mapped, CHUNK), 0);
    for (at, handle) in [mapped, unmapped].into_iter().zip(handles) {
        hip.destroy(handle);
        assert_eq!(hip.release(at, CHUNK), 0);
    }
}

fn busy_streams(hip: &Hip) {
    let (alone, mut blocking) = (hip.stream(), 0);
    assert_eq!(call!(hip.extra.create_stream(&raw mut blocking, 0, 0)), 0);
    let every = hip.seen([false, false, true]);
    // A stream that waits for no other, one that the default stream waits for, and that.
    assert_waits(hip, alone, [false, every, true, false]);
    for stream in [blocking, 0] {
        assert_waits(hip, stream, [!every, true, true, false]);
    }
    hip.destroy_stream(alone);
    hip.destroy_stream(blocking);
}
