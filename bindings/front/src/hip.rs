//! The calls of libamdhip64 that the front answers.

#![expect(non_snake_case, reason = "the functions keep their C names")]

mod streams;

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::Arc;
use std::{ptr, slice};

use cachette_hal::load::Candidate;
use cachette_hal::{Backend, LoadError, StreamRef};
use cachette_hal_hip::HipBackend;

use cachette_process::write_line;

use crate::captures::Destructor;
use crate::driver_pools::{self, Properties, Right};
use crate::entry::{End, Thread, VendorCalls, front};
use crate::last_error::{self, quietly};
use crate::library::{Behind, Vendor};
use crate::memory;
use crate::served::{self, Served};
use crate::status::{INVALID_HANDLE, NOT_SUPPORTED, Refusal, SUCCESS, Status};
use streams::{begin_capture, create_stream, destroy_stream, end_capture};

/// A stream, pool or graph of the driver.
type Handle = *mut c_void;
type Answer = Result<(), Refusal>;

/// HIP's status for a stream that does not exist.
const CONTEXT_IS_DESTROYED: Status = 709;

static HIP: Behind<Calls> = Behind::new(Vendor {
    backend: "hip",
    stem: "libamdhip64",
    variable: "CACHETTE_HIP_LIBRARY",
    run_variable: "CACHETTE_RUN_HIP",
    candidates: cachette_hal_hip::candidates,
    load,
    resolve: Calls::resolve,
    answered: "hipMalloc",
    own,
});

/// # Safety
///
/// Each candidate is the driver's library, or one with the same C interface.
unsafe fn load(candidates: &[Candidate]) -> Result<Arc<dyn Backend>, LoadError> {
    cachette_hal_hip::last_error::keep();
    // SAFETY: the caller's promise.
    Ok(Arc::new(unsafe { HipBackend::load_from(candidates) }?))
}

/// What serves the current device.
#[inline]
fn current(thread: &Thread, calls: &Calls) -> Result<&'static Served, Refusal> {
    let device = device(calls)?;
    // Zero is no device.
    served::current(thread, device as usize + 1, || served::device(&HIP, device))
}

#[inline]
fn device(calls: &Calls) -> Result<u32, Refusal> {
    let mut device = 0;
    // SAFETY: the driver writes one number.
    match unsafe { calls.hipGetDevice(&raw mut device) } {
        SUCCESS => u32::try_from(device).map_err(|_| Refusal::Driver),
        _ => Err(Refusal::Driver),
    }
}

/// What serves a stream of the caller, which may be of another device than the current one.
#[inline]
fn of_stream(thread: &Thread, calls: &Calls, stream: StreamRef) -> Result<&'static Served, Refusal> {
    served::of_stream(thread, stream, || {
        if stream == StreamRef::DEFAULT {
            return current(thread, calls);
        }
        let mut own = 0;
        // SAFETY: the stream is the caller's, and the driver writes one number.
        let ask = || unsafe { calls.hipStreamGetDevice(ptr::with_exposed_provenance_mut(stream.raw()), &raw mut own) };
        let status = quietly(calls, ask);
        match u32::try_from(own) {
            _ if status == CONTEXT_IS_DESTROYED => Err(Refusal::Stream),
            Ok(own) if status == SUCCESS && own != device(calls)? => served::device(&HIP, own),
            _ => current(thread, calls),
        }
    })
}

/// Allocates for a stream of the caller.
///
/// # Safety
///
/// 1. `out` is null or valid for writing.
/// 2. `stream` is a live stream.
#[inline]
unsafe fn allocate(thread: &Thread, calls: &Calls, out: *mut u64, bytes: usize, stream: Handle) -> Answer {
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
unsafe fn free_on(thread: &Thread, calls: &Calls, address: u64, stream: Handle) -> Answer {
    // SAFETY: 1. is the caller's promise.
    let wait = || unsafe { calls.hipStreamSynchronize(stream) };
    // SAFETY: 1. is the caller's promise.
    unsafe { memory::free_on(thread, address, stream, |stream| of_stream(thread, calls, stream), wait) }
}

/// Tells the default pool of a device; `None` if there is no such device.
fn default_of(calls: &Calls) -> impl Fn(u32) -> Option<usize> {
    |device| {
        let mut default = ptr::null_mut();
        let device = c_int::try_from(device).ok()?;
        // SAFETY: the driver writes one handle.
        let status = quietly(calls, || unsafe { calls.hipDeviceGetDefaultMemPool(&raw mut default, device) });
        (status == SUCCESS).then_some(default.addr())
    }
}

/// # Safety
///
/// As for [`allocate`].
#[inline]
unsafe fn allocate_from(
    thread: &Thread,
    calls: &Calls,
    out: *mut u64,
    bytes: usize,
    pool: Handle,
    stream: Handle,
) -> Answer {
    let stream = memory::stream(stream)?;
    let served = driver_pools::served(thread, pool.addr(), default_of(calls), |device| served::device(&HIP, device))?;
    // Cachette orders memory by streams of its own device.
    if of_stream(thread, calls, stream)?.device != served.device {
        return Err(Refusal::Driver);
    }
    // SAFETY: 1. and 2. are the caller's promises.
    unsafe { memory::allocate(served, out, bytes, stream) }
}

/// The refusal of memory in stream order, for which the driver has another status of an unknown stream.
fn ordered(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Stream => Refusal::Status(INVALID_HANDLE),
        refusal => refusal,
    }
}

impl VendorCalls for Calls {
    const UNKNOWN_STREAM: Status = CONTEXT_IS_DESTROYED;

    #[inline]
    fn leave(&self, end: End) {
        last_error::leave(self, end);
    }
}

front! {
    HIP;
    answered {
        /// Memory for every stream at once.
        fn hipMalloc(out: *mut u64, bytes: usize) |thread, calls| {
            let served = current(thread, calls)?;
            // SAFETY: 1. is the caller's promise.
            unsafe { memory::allocate_idle(served, out, bytes) }
        }

        /// Waits for the device, then frees.
        fn hipFree(address: u64) |thread, _| {
            memory::free(thread, address)
        }

        /// Memory for a stream.
        fn hipMallocAsync(out: *mut u64, bytes: usize, stream: Handle) |thread, calls| {
            // SAFETY: 1. and 2. are the caller's promises.
            unsafe { allocate(thread, calls, out, bytes, stream) }.map_err(ordered)
        }

        /// Memory of a pool of the driver, for a stream.
        fn hipMallocFromPoolAsync(out: *mut u64, bytes: usize, pool: Handle, stream: Handle) |thread, calls| {
            // SAFETY: 1. and 2. are the caller's promises.
            unsafe { allocate_from(thread, calls, out, bytes, pool, stream) }.map_err(ordered)
        }

        /// Frees behind the work of a stream.
        fn hipFreeAsync(address: u64, stream: Handle) |thread, calls| {
            // SAFETY: 1. is the caller's promise.
            unsafe { free_on(thread, calls, address, stream) }.map_err(ordered)
        }

        /// The allocation that an address lies in.
        fn hipMemGetAddressRange(base: *mut u64, bytes: *mut usize, address: u64) |thread, _| {
            // SAFETY: they are null or valid.
            unsafe { memory::write_range(thread, base, bytes, address) }
        }

        /// Free and total memory; what Cachette holds idle is free.
        fn hipMemGetInfo(free: *mut usize, total: *mut usize) |thread, calls| {
            // SAFETY: they are null or valid.
            unsafe { memory::write_info(current(thread, calls)?, free, total) }
        }

        /// Names memory for another process, if the driver can.
        fn hipIpcGetMemHandle(token: *mut c_void, address: u64) |thread, _| {
            let _ = token;
            memory::share(thread, address, "hipIpcGetMemHandle")
        }

        /// Memory of Cachette is in no pool of the driver.
        fn hipMemPoolExportPointer(data: *mut c_void, address: u64) |thread, _| {
            let _ = data;
            memory::range(thread, address)?;
            write_line("hipMemPoolExportPointer is not supported: Cachette serves pools without handle types");
            Err(Refusal::Status(NOT_SUPPORTED))
        }

        /// Notes whether the new pool is served.
        fn hipMemPoolCreate(pool: *mut Handle, properties: *const Properties) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let status = unsafe { calls.hipMemPoolCreate(pool, properties) };
            if status != SUCCESS {
                return Err(Refusal::Status(status));
            }
            // SAFETY: the driver has read it.
            let properties = unsafe { properties.read() };
            // SAFETY: the driver has written it.
            driver_pools::note(unsafe { pool.read() }.addr(), properties.device());
            Ok(())
        }

        /// Forgets the pool.
        fn hipMemPoolDestroy(pool: Handle) |_, calls| {
            driver_pools::forget(pool.addr(), default_of(calls));
            Err(Refusal::Driver)
        }

        /// Leaves a pool that other devices reach to the driver.
        fn hipMemPoolSetAccess(pool: Handle, rights: *const Right, count: usize) |_, calls| {
            if !rights.is_null() {
                // SAFETY: it is not null, and otherwise valid for so many.
                driver_pools::grant(pool.addr(), unsafe { slice::from_raw_parts(rights, count) }, default_of(calls));
            }
            Err(Refusal::Driver)
        }

        /// Notes who serves the plain requests of a device.
        fn hipDeviceSetMemPool(device: c_int, pool: Handle) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let status = unsafe { calls.hipDeviceSetMemPool(device, pool) };
            if status != SUCCESS {
                return Err(Refusal::Status(status));
            }
            if let Ok(device) = u32::try_from(device) {
                driver_pools::choose(device, pool.addr(), default_of(calls));
            }
            Ok(())
        }

        /// Begins a capture with a pool of memory.
        fn hipStreamBeginCapture(stream: Handle, mode: c_uint) |thread, calls| {
            // SAFETY: the arguments are the caller's.
            let begin = || unsafe { calls.hipStreamBeginCapture(stream, mode) };
            // SAFETY: 1. is the caller's promise.
            unsafe { begin_capture(thread, calls, stream, begin) }
        }

        /// Ends a capture; its memory belongs to the graph.
        fn hipStreamEndCapture(stream: Handle, graph: *mut Handle) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let end = || unsafe { calls.hipStreamEndCapture(stream, graph) };
            // SAFETY: 1. is the caller's promise.
            unsafe { end_capture(calls, stream, graph, end) }
        }

        /// A new stream, or one that the program destroyed.
        fn hipStreamCreate(stream: *mut Handle) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let create = || unsafe { calls.hipStreamCreate(stream) };
            // SAFETY: 1. is the caller's promise.
            unsafe { create_stream(calls, stream, 0, 0, create) }
        }

        /// The same with flags.
        fn hipStreamCreateWithFlags(stream: *mut Handle, flags: c_uint) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let create = || unsafe { calls.hipStreamCreateWithFlags(stream, flags) };
            // SAFETY: 1. is the caller's promise.
            unsafe { create_stream(calls, stream, flags, 0, create) }
        }

        /// The same with a priority.
        fn hipStreamCreateWithPriority(stream: *mut Handle, flags: c_uint, priority: c_int) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let create = || unsafe { calls.hipStreamCreateWithPriority(stream, flags, priority) };
            // SAFETY: 1. is the caller's promise.
            unsafe { create_stream(calls, stream, flags, priority, create) }
        }

        /// Keeps the stream for its memory.
        fn hipStreamDestroy(stream: Handle) |_, calls| {
            destroy_stream(calls, stream)
        }

        /// Leaves the device to the driver.
        fn hipDeviceReset() |_, calls| {
            // SAFETY: the caller's promise.
            served::reset_by(device(calls)?, || unsafe { calls.hipDeviceReset() })
        }

        /// The last error, taken away.
        fn hipGetLastError() |_, calls| {
            Err(Refusal::Asked(last_error::get(calls)))
        }

        /// The last error.
        fn hipPeekAtLastError() |_, calls| {
            Err(Refusal::Asked(last_error::peek(calls)))
        }

        /// The status of the last call, taken away.
        fn hipExtGetLastError() |_, calls| {
            Err(Refusal::Asked(last_error::get_of_last_call(calls)))
        }

        /// Functions by name; those of the front for the calls that it answers.
        fn hipGetProcAddress(
            symbol: *const c_char, function: *mut *const c_void, version: c_int, flags: c_ulonglong, found: *mut c_uint,
        ) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let status = unsafe { calls.hipGetProcAddress(symbol, function, version, flags, found) };
            if status != SUCCESS || symbol.is_null() || function.is_null() {
                return if status == SUCCESS { Ok(()) } else { Err(Refusal::Status(status)) };
            }
            // SAFETY: the driver has read it.
            let symbol = unsafe { CStr::from_ptr(symbol) };
            if let Some(ours) = symbol.to_str().ok().and_then(own) {
                // SAFETY: the driver has written it.
                unsafe { function.write(ours.cast()) };
            }
            Ok(())
        }
    }
    called {
        fn hipRuntimeGetVersion(version: *mut c_int);
        fn hipSetDevice(device: c_int);
        fn hipDeviceGetDefaultMemPool(pool: *mut Handle, device: c_int);
        fn hipGetDevice(device: *mut c_int);
        fn hipGraphDestroy(graph: Handle);
        fn hipGraphRetainUserObject(graph: Handle, object: Handle, count: c_uint, flags: c_uint);
        fn hipStreamGetDevice(stream: Handle, device: *mut c_int);
        fn hipStreamQuery(stream: Handle);
        fn hipThreadExchangeStreamCaptureMode(mode: *mut c_uint);
        fn hipStreamIsCapturing(stream: Handle, status: *mut c_uint);
        fn hipStreamSynchronize(stream: Handle);
        fn hipUserObjectCreate(
            object: *mut Handle, data: *mut c_void, destroy: Destructor, count: c_uint, flags: c_uint,
        );
    }
}
