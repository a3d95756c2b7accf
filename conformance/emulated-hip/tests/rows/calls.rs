//! Rows about memory, errors, events and peers.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use cachette_hal_hip::types::{EventHandle, Status, StreamHandle};

use crate::captures::begin_as;
use crate::hip::Hip;

pub(crate) const ROWS: &[super::Row] = &[
    ("no_bytes_are_null", no_bytes),
    ("freeing_null_in_stream_order", free_null),
    ("a_pending_event_and_the_last_error", pending_event),
    ("an_event_that_was_never_recorded_has_passed", unrecorded_event),
    ("a_null_event_is_an_invalid_handle", null_event),
    ("a_destroyed_stream_and_calls_that_do_not_crash", destroyed_stream),
    ("destroying_a_stream_waits_for_its_work", destroy_waits),
    ("calls_for_memory_while_a_stream_is_busy", busy_streams),
    ("a_query_blocks_while_a_thread_waits_for_the_event", query_while_waiting),
    ("a_device_and_itself", own_peer),
    ("peers_enabled_twice", peers_twice),
    ("an_event_destroyed_twice", destroyed_event),
    ("a_fill_past_the_end", fill_past_end),
    ("pooled_memory_for_an_unknown_stream", pooled_for_unknown),
    ("a_pool_counts_what_it_gives_out", pool_counts),
    ("a_copy_goes_where_its_addresses_say", copy),
    ("a_stream_has_the_flags_and_priority_of_its_creation", stream_kind),
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
        let calls = hip.symbols.host_calls.as_ref().expect("it has every function");
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
    let pool = hip.symbols.stream_ordered.as_ref().expect("it has every function");
    // SAFETY: there is nothing to free.
    let status = unsafe { (pool.hipFreeAsync)(0, 0) };
    assert_eq!(status, hip.seen([1, 0, 0]));
}

pub(crate) fn event(hip: &Hip) -> EventHandle {
    let mut event = 0;
    // SAFETY: the out-parameter outlives the call.
    let status = unsafe { (hip.symbols.core.hipEventCreateWithFlags)(&raw mut event, 2) };
    assert_eq!(status, 0);
    event
}

pub(crate) fn query(hip: &Hip, event: EventHandle) -> Status {
    // SAFETY: the library checks it.
    unsafe { (hip.symbols.core.hipEventQuery)(event) }
}

pub(crate) fn destroy_event(hip: &Hip, event: EventHandle) {
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

fn query_while_waiting(hip: &Hip) {
    let (gate, stream, event) = (Gate::default(), hip.stream(), event(hip));
    gate.hold(hip, stream);
    // SAFETY: both live.
    let status = unsafe { (hip.symbols.core.hipEventRecord)(event, stream) };
    assert_eq!(status, 0);
    let answered = AtomicBool::new(false);
    thread::scope(|scope| {
        // SAFETY: the event lives.
        scope.spawn(|| assert_eq!(unsafe { (hip.extra.wait)(event) }, 0));
        thread::sleep(Duration::from_millis(50));
        scope.spawn(|| {
            assert_eq!(query(hip, event), 0, "it answers when the wait is over");
            answered.store(true, Ordering::Release);
        });
        thread::sleep(Duration::from_millis(50));
        let early = answered.load(Ordering::Acquire);
        // SAFETY: the stream lives.
        let of_stream = unsafe { (hip.extra.query)(stream) };
        gate.release();
        assert!(!early, "the query did not block");
        assert_eq!(of_stream, 600, "a query of the stream does not block");
    });
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

fn destroyed_stream(hip: &Hip) {
    let stream = hip.destroyed_stream();
    let captures = hip.symbols.capture.as_ref().expect("it has every function");
    let (mut state, mut device, mut at, none) = (-1, -1, 0, ptr::null_mut());
    // SAFETY: the library looks the stream up, and the out-parameters outlive the calls.
    let info = unsafe {
        (captures.hipStreamGetCaptureInfo_v2)(stream, &raw mut state, none, none.cast(), none.cast(), none.cast())
    };
    // SAFETY: as above.
    let of_device = unsafe { (hip.extra.device_of)(stream, &raw mut device) };
    assert_eq!([info, of_device], [709; 2], "calls that look the stream up");
    // SAFETY: as above.
    let capturing = unsafe { (hip.extra.is_capturing)(stream, &raw mut state) };
    // SAFETY: as above.
    let allocated = unsafe { (hip.extra.malloc_async)(&raw mut at, 64, stream) };
    // SAFETY: as above.
    let destroyed = unsafe { (hip.symbols.core.hipStreamDestroy)(stream) };
    let mut flags = 9;
    // SAFETY: as above.
    let kind = unsafe { (hip.extra.flags)(stream, &raw mut flags) };
    let found = [capturing, hip.synchronize(stream), allocated, begin_as(hip, stream, 2), destroyed, kind];
    assert_eq!(found, hip.seen([[709, 709, 400, 709, 709, 709], [0; 6], [0; 6]]), "calls that do not, since 7.0");
    if allocated == 0 {
        hip.free(at);
    }
    take_last_error(hip);
}

fn destroy_waits(hip: &Hip) {
    let (gate, stream, returned) = (Gate::default(), hip.stream(), AtomicBool::new(false));
    gate.hold(hip, stream);
    thread::scope(|scope| {
        scope.spawn(|| {
            hip.destroy_stream(stream);
            returned.store(true, Ordering::Release);
        });
        thread::sleep(Duration::from_millis(50));
        let early = returned.load(Ordering::Acquire);
        gate.release();
        assert!(!early, "the stream was destroyed while its work ran");
    });
}

/// Which calls for memory return only after the work of a stream, in order: map, unmap, free, and all others.
fn waits_for(hip: &Hip, stream: StreamHandle) -> [bool; 4] {
    const CHUNK: u64 = 2 << 20;
    let (mapped, free) = (hip.reserve(CHUNK, 0).expect("there are addresses"), hip.reserve(CHUNK, 0));
    let (free, plain) = (free.expect("there are addresses"), hip.malloc(CHUNK));
    let handles = [hip.create(CHUNK), hip.create(CHUNK)];
    assert_eq!(hip.map(mapped, CHUNK, handles[0]), 0);
    let others = || {
        assert_eq!(hip.grant(mapped, CHUNK), 0);
        let at = hip.reserve(CHUNK, 0).expect("there are addresses");
        hip.destroy(hip.create(CHUNK));
        assert_eq!(hip.release(at, CHUNK), 0);
    };
    let waits = |call: &(dyn Fn() + Sync)| {
        let (gate, returned) = (Gate::default(), AtomicBool::new(false));
        gate.hold(hip, stream);
        let early = thread::scope(|scope| {
            scope.spawn(|| {
                call();
                returned.store(true, Ordering::Release);
            });
            thread::sleep(Duration::from_millis(30));
            let early = returned.load(Ordering::Acquire);
            gate.release();
            early
        });
        // The stream has passed the gate before that goes.
        assert_eq!(hip.synchronize(stream), 0);
        !early
    };
    let found = [
        waits(&|| assert_eq!(hip.map(free, CHUNK, handles[1]), 0)),
        waits(&|| assert_eq!(hip.unmap(free, CHUNK), 0)),
        waits(&|| hip.free(plain)),
        waits(&others),
    ];
    assert_eq!(hip.unmap(mapped, CHUNK), 0);
    for (at, handle) in [mapped, free].into_iter().zip(handles) {
        hip.destroy(handle);
        assert_eq!(hip.release(at, CHUNK), 0);
    }
    found
}

fn busy_streams(hip: &Hip) {
    let (alone, mut blocking) = (hip.stream(), 0);
    // SAFETY: the out-parameter outlives the call.
    assert_eq!(unsafe { (hip.extra.create_stream)(&raw mut blocking, 0, 0) }, 0);
    let every = hip.seen([false, false, true]);
    assert_eq!(waits_for(hip, alone), [false, every, true, false], "a stream that waits for no other");
    for stream in [blocking, 0] {
        assert_eq!(waits_for(hip, stream), [!every, true, true, false], "the default stream, or one that it waits for");
    }
    hip.destroy_stream(alone);
    hip.destroy_stream(blocking);
}

fn own_peer(hip: &Hip) {
    let peers = hip.symbols.peer_access.as_ref().expect("it has every function");
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
    let peers = hip.symbols.peer_access.as_ref().expect("it has every function");
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

fn copy(hip: &Hip) {
    const BY_ADDRESS: i32 = 4;
    let (there, from, mut to) = (hip.malloc(8), [7_u8; 8], [0_u8; 8]);
    let device = ptr::with_exposed_provenance_mut::<c_void>(usize::try_from(there).expect("64 bits"));
    let copy = |to: *mut c_void, from: *const c_void, bytes, kind| {
        // SAFETY: the library checks what it knows of, and the arrays are as long as they say.
        unsafe { (hip.extra.copy)(to, from, bytes, kind) }
    };
    assert_eq!(copy(device, from.as_ptr().cast(), 8, BY_ADDRESS), 0);
    // The wrong direction is not noticed.
    assert_eq!(copy(to.as_mut_ptr().cast(), device, 8, 1), 0);
    assert_eq!(to, from);
    assert_eq!(copy(device, from.as_ptr().cast(), 9, BY_ADDRESS), 1);
    assert_eq!(copy(device, ptr::null(), 8, BY_ADDRESS), 1);
    assert_eq!(copy(device, from.as_ptr().cast(), 8, 17), 21);
    hip.free(there);
}

fn stream_kind(hip: &Hip) {
    let (mut stream, mut flags, mut priority) = (0, 0, 0);
    // SAFETY: the out-parameter outlives the call.
    assert_eq!(unsafe { (hip.extra.create_stream)(&raw mut stream, 1, -9) }, 0);
    // SAFETY: the stream lives, and the out-parameter outlives the call.
    assert_eq!(unsafe { (hip.extra.flags)(stream, &raw mut flags) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { (hip.extra.priority)(stream, &raw mut priority) }, 0);
    assert_eq!((flags, priority), (1, -1));
    hip.destroy_stream(stream);
}

fn destroyed_event(hip: &Hip) {
    let event = event(hip);
    destroy_event(hip, event);
    // SAFETY: the library knows that it is gone.
    assert_eq!(unsafe { (hip.symbols.core.hipEventDestroy)(event) }, 709);
    take_last_error(hip);
}

fn fill_past_end(hip: &Hip) {
    let (at, transfer) = (hip.malloc(64), hip.symbols.transfer.as_ref().expect("it has every function"));
    for (address, bytes) in [(at, 65), (at + 60, 8), (0x1000, 8)] {
        // SAFETY: the library refuses it.
        assert_eq!(unsafe { (transfer.hipMemsetAsync)(address, 0, bytes, 0) }, 1);
    }
    hip.free(at);
    take_last_error(hip);
}

fn pooled_for_unknown(hip: &Hip) {
    let (calls, mut pool, mut at) = (hip.symbols.stream_ordered.as_ref().expect("it has every function"), 0, 0);
    // SAFETY: the out-parameter outlives the call.
    assert_eq!(unsafe { (calls.hipDeviceGetDefaultMemPool)(&raw mut pool, 0) }, 0);
    // SAFETY: the library refuses the stream.
    assert_eq!(unsafe { (calls.hipMallocFromPoolAsync)(&raw mut at, 64, pool, 0x1234_5678) }, 400);
    take_last_error(hip);
}

fn pool_counts(hip: &Hip) {
    const USED: i32 = 7;
    let calls = hip.symbols.stream_ordered.as_ref().expect("it has every function");
    // Pinned memory of device 0 without handles.
    let (properties, mut pool, mut at) = ([1, 0, 1, 0], 0, 0);
    // SAFETY: both outlive the call.
    assert_eq!(unsafe { (hip.extra.create_pool)(&raw mut pool, properties.as_ptr().cast()) }, 0);
    let used = || {
        let mut bytes = 0_u64;
        // SAFETY: the out-parameter has 64 bits, as this attribute wants.
        assert_eq!(unsafe { (hip.extra.pool_attribute)(pool, USED, (&raw mut bytes).cast()) }, 0);
        bytes
    };
    // SAFETY: the pool lives, and the out-parameter outlives the call.
    assert_eq!(unsafe { (calls.hipMallocFromPoolAsync)(&raw mut at, 4096, pool, 0) }, 0);
    assert_eq!(used(), 4096);
    // SAFETY: it was allocated just now.
    assert_eq!(unsafe { (calls.hipFreeAsync)(at, 0) }, 0);
    assert_eq!(used(), 0);
    // SAFETY: it was created above, and nothing uses it.
    assert_eq!(unsafe { (hip.extra.destroy_pool)(pool) }, 0);
}
