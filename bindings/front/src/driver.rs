//! What the front does for the calls of either driver.

#![expect(non_snake_case, reason = "the functions keep their C names")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use cachette_hal::StreamRef;

use crate::captures::Destructor;
use crate::driver_pools::{self, Properties};
use crate::entry::{End, Thread, functions};
use crate::library::Behind;
use crate::served::{self, Served};
use crate::status::{Refusal, SUCCESS, Status};
use crate::streams::{self, Kind};
use crate::{captures, memory};

/// A stream, context, pool or graph of a driver.
pub(crate) type Handle = *mut c_void;
pub(crate) type Answer = Result<(), Refusal>;

functions! {
    /// Functions that both drivers have: their names differ by the prefix alone.
    Common {
        fn DeviceGet(device: *mut c_int, ordinal: c_int);
        fn DeviceGetDefaultMemPool(pool: *mut Handle, device: c_int);
        fn GraphDestroy(graph: Handle);
        fn GraphRetainUserObject(graph: Handle, object: Handle, count: c_uint, flags: c_uint);
        fn StreamEndCapture(stream: Handle, graph: *mut Handle);
        fn StreamIsCapturing(stream: Handle, status: *mut c_uint);
        fn StreamQuery(stream: Handle);
        fn StreamSynchronize(stream: Handle);
        fn ThreadExchangeStreamCaptureMode(mode: *mut c_uint);
        fn UserObjectCreate(
            object: *mut Handle, data: *mut c_void, destroy: Destructor, count: c_uint, flags: c_uint,
        );
    }
}

/// What differs between the drivers.
pub(crate) trait Driver: Sized + 'static {
    /// The status of a call with a stream that does not exist.
    const UNKNOWN_STREAM: Status;

    fn behind() -> &'static Behind<Self>;

    fn common(&self) -> &Common;

    /// What serves the current context or device.
    fn current(&self, thread: &Thread) -> Result<&'static Served, Refusal>;

    /// The device of new streams, if Cachette can serve their context.
    fn device(&self) -> Result<u32, Refusal>;

    /// What serves a stream that is not the default one, and may be of another device than the current one.
    fn find(&self, thread: &Thread, stream: StreamRef) -> Result<&'static Served, Refusal>;

    /// Whether the driver can move managed memory of a device to the host.
    fn pages_managed(&self, _device: u32) -> bool {
        true
    }

    /// The device of physical memory that names a device.
    fn physical_device(&self, named: u32) -> Result<u32, Refusal> {
        Ok(named)
    }

    /// Makes a call that the program did not make. Its failure is not the program's.
    #[inline]
    fn quietly(&self, call: impl FnOnce() -> Status) -> Status {
        call()
    }

    /// Runs at the end of a call.
    #[inline]
    fn leave(&self, _end: End) {}

    /// The refusal of memory in stream order.
    #[inline]
    fn ordered(refusal: Refusal) -> Refusal {
        refusal
    }

    /// Takes a capture off a stream that the driver may have left it on.
    fn detach(&self, _stream: Handle) {}

    /// Whether a stream is captured; it may be if the driver does not tell.
    fn is_captured(&self, stream: Handle) -> bool {
        let mut status = 0;
        // SAFETY: the stream lives, and the driver writes one number.
        let ask = || unsafe { self.common().StreamIsCapturing(stream, &raw mut status) };
        self.quietly(ask) != SUCCESS || status != 0
    }

    /// Does something in relaxed mode, in which this thread breaks no capture.
    fn relaxed<T>(&self, act: impl FnOnce() -> T) -> T {
        let mut mode = captures::RELAXED;
        // SAFETY: the driver reads and writes one number.
        let mut exchange = || self.quietly(|| unsafe { self.common().ThreadExchangeStreamCaptureMode(&raw mut mode) });
        let is_exchanged = exchange() == SUCCESS;
        let acted = act();
        if is_exchanged {
            exchange();
        }
        acted
    }

    fn end_capture(&self, stream: Handle, graph: *mut Handle) -> Status {
        // SAFETY: the driver writes one handle, or refuses a stream that is not captured.
        self.quietly(|| unsafe { self.common().StreamEndCapture(stream, graph) })
    }

    /// Destroys a graph that [`end_capture`](Self::end_capture) gave, which no other code has.
    fn destroy_graph(&self, graph: Handle) -> Status {
        // SAFETY: no other code has it.
        self.quietly(|| unsafe { self.common().GraphDestroy(graph) })
    }
}

/// What serves a stream of the caller.
#[inline]
fn of_stream<D: Driver>(thread: &Thread, calls: &D, stream: StreamRef) -> Result<&'static Served, Refusal> {
    served::of_stream(thread, stream, || {
        if stream == StreamRef::DEFAULT { calls.current(thread) } else { calls.find(thread, stream) }
    })
}

/// Allocates for a stream of the caller.
///
/// # Safety
///
/// 1. `out` is null or valid for writing.
/// 2. `stream` is a live stream.
#[inline]
pub(crate) unsafe fn allocate<D: Driver>(
    thread: &Thread,
    calls: &D,
    out: *mut u64,
    bytes: usize,
    stream: Handle,
) -> Answer {
    let stream = memory::stream(stream)?;
    let served = of_stream(thread, calls, stream)?;
    if driver_pools::is_left(served.device) {
        return Err(Refusal::Driver);
    }
    // SAFETY: 1. and 2. are the caller's promises.
    unsafe { memory::allocate(served, out, bytes, stream) }
}

/// Frees behind the work of a stream of the caller.
///
/// # Safety
///
/// 1. `stream` is a live stream.
#[inline]
pub(crate) unsafe fn free_on<D: Driver>(thread: &Thread, calls: &D, address: u64, stream: Handle) -> Answer {
    // SAFETY: 1. is the caller's promise.
    let wait = || unsafe { calls.common().StreamSynchronize(stream) };
    // SAFETY: 1. is the caller's promise.
    unsafe { memory::free_on(thread, address, stream, |stream| of_stream(thread, calls, stream), wait) }
}

/// Tells the default pool of a device; `None` if there is no such device.
pub(crate) fn default_of<D: Driver>(calls: &D) -> impl Fn(u32) -> Option<usize> {
    |device| {
        let mut default = ptr::null_mut();
        let device = c_int::try_from(device).ok()?;
        // SAFETY: the driver writes one handle.
        let ask = || unsafe { calls.common().DeviceGetDefaultMemPool(&raw mut default, device) };
        (calls.quietly(ask) == SUCCESS).then_some(default.addr())
    }
}

/// Allocates from a pool of the driver.
///
/// # Safety
///
/// As for [`allocate`].
#[inline]
pub(crate) unsafe fn allocate_from<D: Driver>(
    thread: &Thread,
    calls: &D,
    out: *mut u64,
    bytes: usize,
    pool: Handle,
    stream: Handle,
) -> Answer {
    let stream = memory::stream(stream)?;
    let open = |device| served::device(D::behind(), device);
    let served = driver_pools::served(thread, pool.addr(), default_of(calls), open)?;
    // Cachette orders memory by streams of its own device.
    if of_stream(thread, calls, stream)?.device != served.device {
        return Err(Refusal::Driver);
    }
    // SAFETY: 1. and 2. are the caller's promises.
    unsafe { memory::allocate(served, out, bytes, stream) }
}

/// Notes whether a pool that the driver was asked for is served.
///
/// # Safety
///
/// After success, 1. both are valid for reading.
pub(crate) unsafe fn note_pool(status: Status, pool: *mut Handle, properties: *const Properties) -> Answer {
    if status != SUCCESS {
        return Err(Refusal::Status(status));
    }
    // SAFETY: 1. is the caller's promise.
    let properties = unsafe { properties.read() };
    // SAFETY: 1. is the caller's promise.
    driver_pools::note(unsafe { pool.read() }.addr(), properties.device());
    Ok(())
}

/// Notes who serves the plain requests of a device, whose pool the driver was asked to change.
pub(crate) fn note_choice<D: Driver>(calls: &D, status: Status, device: c_int, pool: Handle) -> Answer {
    if status != SUCCESS {
        return Err(Refusal::Status(status));
    }
    if let Ok(device) = u32::try_from(device) {
        driver_pools::choose(device, pool.addr(), default_of(calls));
    }
    Ok(())
}

/// Begins a capture by `begin`, and leads its requests to a pool.
///
/// # Safety
///
/// 1. `stream` is a live stream.
pub(crate) unsafe fn begin_capture<D: Driver>(
    thread: &Thread,
    calls: &D,
    stream: Handle,
    begin: impl FnOnce() -> Status,
) -> Answer {
    let captured = memory::stream(stream)?;
    let served = of_stream(thread, calls, captured)?;
    let stop = |graph| calls.end_capture(stream, graph);
    // SAFETY: 1. is the caller's promise.
    unsafe { captures::begin_by(served, captured, begin, stop, |graph| calls.destroy_graph(graph)) }
}

/// Ends a capture by `end`, and ties its pool to the graph.
///
/// # Safety
///
/// 1. `graph` is null or valid for reading and writing.
pub(crate) unsafe fn end_capture<D: Driver>(
    calls: &D,
    stream: Handle,
    graph: *mut Handle,
    end: impl FnOnce() -> Status,
) -> Answer {
    let captured = memory::stream(stream)?;
    let common = calls.common();
    // SAFETY: the driver writes one handle; the destructor takes the pool.
    let make = |object, pool, gone| unsafe { common.UserObjectCreate(object, pool, gone, 1, captures::NO_SYNC) };
    let create = |object, pool, gone| calls.quietly(|| make(object, pool, gone));
    // SAFETY: both handles are live, and the graph takes the only reference.
    let give = |graph, object| unsafe { common.GraphRetainUserObject(graph, object, 1, captures::MOVE) };
    let retain = |graph, object| calls.quietly(|| give(graph, object));
    // SAFETY: 1. is the caller's promise.
    unsafe { captures::end_by(captured, graph, end, create, retain) }
}

/// Creates a stream by `create`, or gives a kept one.
///
/// # Safety
///
/// 1. `stream` is null or valid for writing.
pub(crate) unsafe fn create_stream<D: Driver>(
    calls: &D,
    stream: *mut Handle,
    flags: c_uint,
    priority: c_int,
    create: impl FnOnce() -> Status,
) -> Answer {
    if stream.is_null() {
        return Err(Refusal::Driver);
    }
    let kind = Kind { device: calls.device()?, flags, priority };
    // SAFETY: 1. it is not null, and otherwise the caller's promise.
    unsafe { streams::create(stream, kind, |kept| is_idle(calls, kept), create) }
}

/// Whether a stream that the front keeps has no work and is not captured.
fn is_idle<D: Driver>(calls: &D, stream: Handle) -> bool {
    // SAFETY: the stream lives.
    let query = || unsafe { calls.common().StreamQuery(stream) };
    calls.relaxed(|| !calls.is_captured(stream) && calls.quietly(query) == SUCCESS)
}

/// Keeps a stream that the program destroys.
pub(crate) fn destroy_stream<D: Driver>(calls: &D, stream: Handle) -> Answer {
    let Ok(named) = memory::stream(stream) else { return Err(Refusal::Driver) };
    let end_capture = || {
        if calls.is_captured(stream) {
            let stop = |graph| calls.end_capture(stream, graph);
            if captures::cancel(named, stop, |graph| calls.destroy_graph(graph)) {
                calls.detach(stream);
            }
        }
    };
    streams::destroy(stream, end_capture).inspect_err(|refusal| captures::stream_ends(named, *refusal))
}

/// Replaces a function that the driver has found by that of the front, if `find` knows one.
///
/// # Safety
///
/// After success, 1. `symbol` is a string, and 2. `function` is valid for reading and writing.
pub(crate) unsafe fn replace(
    status: Status,
    symbol: *const c_char,
    function: *mut *const c_void,
    find: impl FnOnce(&str) -> Option<*const ()>,
) -> Answer {
    if status != SUCCESS || symbol.is_null() || function.is_null() {
        return if status == SUCCESS { Ok(()) } else { Err(Refusal::Status(status)) };
    }
    // SAFETY: 1.
    let symbol = unsafe { CStr::from_ptr(symbol) };
    // SAFETY: 2.
    let is_found = !unsafe { function.read() }.is_null();
    if is_found && let Some(ours) = symbol.to_str().ok().and_then(find) {
        // SAFETY: 2.
        unsafe { function.write(ours.cast()) };
    }
    Ok(())
}
