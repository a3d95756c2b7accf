//! The calls of libcuda that the front answers.

#![expect(non_snake_case, reason = "the functions keep their C names")]

mod entry_points;
mod streams;

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::Arc;
use std::{ptr, slice};

use cachette_hal::load::Candidate;
use cachette_hal::{Backend, LoadError, StreamRef};
use cachette_hal_cuda::CudaBackend;

use cachette_process::write_line;

use crate::captures::Destructor;
use crate::driver_pools::{self, Properties, Right};
use crate::entry::{Thread, VendorCalls, front};
use crate::library::{Behind, Vendor};
use crate::memory;
use crate::served::{self, Served};
use crate::status::{INVALID_HANDLE, NOT_SUPPORTED, Refusal, SUCCESS, Status};
use streams::{begin_capture, create_stream, destroy_stream, end_capture};

/// A stream, context, pool or graph of the driver.
type Handle = *mut c_void;
type Answer = Result<(), Refusal>;

static CUDA: Behind<Calls> = Behind::new(Vendor {
    backend: "cuda",
    stem: "libcuda.so",
    variable: "CACHETTE_CUDA_LIBRARY",
    run_variable: "CACHETTE_RUN_CUDA",
    candidates: cachette_hal_cuda::candidates,
    load,
    resolve: Calls::resolve,
    answered: "cuMemAlloc_v2",
    own,
});

/// # Safety
///
/// Each candidate is the driver's library, or one with the same C interface.
unsafe fn load(candidates: &[Candidate]) -> Result<Arc<dyn Backend>, LoadError> {
    // SAFETY: the caller's promise.
    Ok(Arc::new(unsafe { CudaBackend::load_from(candidates) }?))
}

/// What serves the current context.
#[inline]
fn current(thread: &Thread, calls: &Calls) -> Result<&'static Served, Refusal> {
    let context = context(calls)?;
    served::current(thread, context.addr(), || {
        let device = device_of(calls, context)?;
        served::device(&CUDA, device)
    })
}

#[inline]
fn context(calls: &Calls) -> Result<Handle, Refusal> {
    let mut context = ptr::null_mut();
    // SAFETY: the driver writes one handle.
    let status = unsafe { calls.cuCtxGetCurrent(&raw mut context) };
    if status == SUCCESS && !context.is_null() { Ok(context) } else { Err(Refusal::Driver) }
}

/// The device of the current context, if that is the device's primary one. Cachette's memory and events are of the
/// primary context, so the driver serves every other.
#[cold]
fn device_of(calls: &Calls, context: Handle) -> Result<u32, Refusal> {
    let (mut device, mut primary) = (0, ptr::null_mut());
    // SAFETY: the driver writes one number.
    if unsafe { calls.cuCtxGetDevice(&raw mut device) } != SUCCESS {
        return Err(Refusal::Driver);
    }
    // SAFETY: the driver writes one handle.
    if unsafe { calls.cuDevicePrimaryCtxRetain(&raw mut primary, device) } != SUCCESS {
        return Err(Refusal::Driver);
    }
    // SAFETY: it was retained above.
    let _ = unsafe { calls.cuDevicePrimaryCtxRelease_v2(device) };
    if primary == context { u32::try_from(device).map_err(|_| Refusal::Driver) } else { Err(Refusal::Driver) }
}

/// What serves a stream of the caller, which may be of another context than the current one.
#[inline]
fn of_stream(thread: &Thread, calls: &Calls, stream: StreamRef) -> Result<&'static Served, Refusal> {
    served::of_stream(thread, stream, || {
        if stream == StreamRef::DEFAULT {
            return current(thread, calls);
        }
        let mut own = ptr::null_mut();
        // SAFETY: the stream is the caller's, and the driver writes one handle.
        let status = unsafe { calls.cuStreamGetCtx(ptr::with_exposed_provenance_mut(stream.raw()), &raw mut own) };
        if status == INVALID_HANDLE {
            return Err(Refusal::Stream);
        }
        if status != SUCCESS || context(calls) == Ok(own) {
            return current(thread, calls);
        }
        // SAFETY: it is the context of a live stream.
        if unsafe { calls.cuCtxPushCurrent_v2(own) } != SUCCESS {
            return Err(Refusal::Driver);
        }
        let device = device_of(calls, own);
        // SAFETY: the driver writes one handle, and the context was pushed above.
        let _ = unsafe { calls.cuCtxPopCurrent_v2(&raw mut own) };
        served::device(&CUDA, device?)
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
    let wait = || unsafe { calls.cuStreamSynchronize(stream) };
    // SAFETY: 1. is the caller's promise.
    unsafe { memory::free_on(thread, address, stream, |stream| of_stream(thread, calls, stream), wait) }
}

/// Tells the default pool of a device; `None` if there is no such device.
fn default_of(calls: &Calls) -> impl Fn(u32) -> Option<usize> {
    |device| {
        let mut default = ptr::null_mut();
        let device = c_int::try_from(device).ok()?;
        // SAFETY: the driver writes one handle.
        let status = unsafe { calls.cuDeviceGetDefaultMemPool(&raw mut default, device) };
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
    let served = driver_pools::served(thread, pool.addr(), default_of(calls), |device| served::device(&CUDA, device))?;
    // Cachette orders memory by streams of its own device.
    if of_stream(thread, calls, stream)?.device != served.device {
        return Err(Refusal::Driver);
    }
    // SAFETY: 1. and 2. are the caller's promises.
    unsafe { memory::allocate(served, out, bytes, stream) }
}

/// The stream that a function for per-thread default streams means.
fn per_thread(stream: Handle) -> Handle {
    const PER_THREAD: usize = 2;
    if stream.is_null() { ptr::without_provenance_mut(PER_THREAD) } else { stream }
}

/// The CUDA runtime keeps the last error itself.
impl VendorCalls for Calls {
    const UNKNOWN_STREAM: Status = INVALID_HANDLE;
}

front! {
    CUDA;
    answered {
        /// Memory for every stream at once.
        fn cuMemAlloc_v2(out: *mut u64, bytes: usize) |thread, calls| {
            let served = current(thread, calls)?;
            // SAFETY: 1. is the caller's promise.
            unsafe { memory::allocate_idle(served, out, bytes) }
        }

        /// Waits for the device, then frees.
        fn cuMemFree_v2(address: u64) |thread, _| {
            memory::free(thread, address)
        }

        /// Memory for a stream.
        fn cuMemAllocAsync(out: *mut u64, bytes: usize, stream: Handle) |thread, calls| {
            // SAFETY: 1. and 2. are the caller's promises.
            unsafe { allocate(thread, calls, out, bytes, stream) }
        }

        /// The same, where null is the thread's default stream.
        fn cuMemAllocAsync_ptsz(out: *mut u64, bytes: usize, stream: Handle) |thread, calls| {
            // SAFETY: 1. and 2. are the caller's promises.
            unsafe { allocate(thread, calls, out, bytes, per_thread(stream)) }
        }

        /// Memory of a pool of the driver, for a stream.
        fn cuMemAllocFromPoolAsync(out: *mut u64, bytes: usize, pool: Handle, stream: Handle) |thread, calls| {
            // SAFETY: 1. and 2. are the caller's promises.
            unsafe { allocate_from(thread, calls, out, bytes, pool, stream) }
        }

        /// The same, where null is the thread's default stream.
        fn cuMemAllocFromPoolAsync_ptsz(out: *mut u64, bytes: usize, pool: Handle, stream: Handle) |thread, calls| {
            // SAFETY: 1. and 2. are the caller's promises.
            unsafe { allocate_from(thread, calls, out, bytes, pool, per_thread(stream)) }
        }

        /// Frees behind the work of a stream.
        fn cuMemFreeAsync(address: u64, stream: Handle) |thread, calls| {
            // SAFETY: 1. is the caller's promise.
            unsafe { free_on(thread, calls, address, stream) }
        }

        /// The same, where null is the thread's default stream.
        fn cuMemFreeAsync_ptsz(address: u64, stream: Handle) |thread, calls| {
            // SAFETY: 1. is the caller's promise.
            unsafe { free_on(thread, calls, address, per_thread(stream)) }
        }

        /// The allocation that an address lies in.
        fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64) |thread, _| {
            // SAFETY: they are null or valid.
            unsafe { memory::write_range(thread, base, bytes, address) }
        }

        /// Free and total memory; what Cachette holds idle is free.
        fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |thread, calls| {
            // SAFETY: they are null or valid.
            unsafe { memory::write_info(current(thread, calls)?, free, total) }
        }

        /// Names memory for another process, if the driver can.
        fn cuIpcGetMemHandle(token: *mut c_void, address: u64) |thread, _| {
            let _ = token;
            memory::share(thread, address, "cuIpcGetMemHandle")
        }

        /// Memory of Cachette is in no pool of the driver.
        fn cuMemPoolExportPointer(data: *mut c_void, address: u64) |thread, _| {
            let _ = data;
            memory::range(thread, address)?;
            write_line("cuMemPoolExportPointer is not supported: Cachette serves pools without handle types");
            Err(Refusal::Status(NOT_SUPPORTED))
        }

        /// Notes whether the new pool is served.
        fn cuMemPoolCreate(pool: *mut Handle, properties: *const Properties) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let status = unsafe { calls.cuMemPoolCreate(pool, properties) };
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
        fn cuMemPoolDestroy(pool: Handle) |_, calls| {
            driver_pools::forget(pool.addr(), default_of(calls));
            Err(Refusal::Driver)
        }

        /// Leaves a pool that other devices reach to the driver.
        fn cuMemPoolSetAccess(pool: Handle, rights: *const Right, count: usize) |_, calls| {
            if !rights.is_null() {
                // SAFETY: it is not null, and otherwise valid for so many.
                driver_pools::grant(pool.addr(), unsafe { slice::from_raw_parts(rights, count) }, default_of(calls));
            }
            Err(Refusal::Driver)
        }

        /// Notes who serves the plain requests of a device.
        fn cuDeviceSetMemPool(device: c_int, pool: Handle) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let status = unsafe { calls.cuDeviceSetMemPool(device, pool) };
            if status != SUCCESS {
                return Err(Refusal::Status(status));
            }
            if let Ok(device) = u32::try_from(device) {
                driver_pools::choose(device, pool.addr(), default_of(calls));
            }
            Ok(())
        }

        /// Begins a capture with a pool of memory.
        fn cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) |thread, calls| {
            // SAFETY: the arguments are the caller's.
            let begin = || unsafe { calls.cuStreamBeginCapture_v2(stream, mode) };
            // SAFETY: 1. is the caller's promise.
            unsafe { begin_capture(thread, calls, stream, begin) }
        }

        /// The same, where null is the thread's default stream.
        fn cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: c_uint) |thread, calls| {
            // SAFETY: the arguments are the caller's.
            let begin = || unsafe { calls.cuStreamBeginCapture_v2_ptsz(stream, mode) };
            // SAFETY: 1. is the caller's promise.
            unsafe { begin_capture(thread, calls, per_thread(stream), begin) }
        }

        /// Begins a capture into a graph that exists.
        fn cuStreamBeginCaptureToGraph(
            stream: Handle, graph: Handle, nodes: *const Handle, edges: *const c_void, count: usize, mode: c_uint,
        ) |thread, calls| {
            // SAFETY: the arguments are the caller's.
            let begin = || unsafe { calls.cuStreamBeginCaptureToGraph(stream, graph, nodes, edges, count, mode) };
            // SAFETY: 1. is the caller's promise.
            unsafe { begin_capture(thread, calls, stream, begin) }
        }

        /// The same, where null is the thread's default stream.
        fn cuStreamBeginCaptureToGraph_ptsz(
            stream: Handle, graph: Handle, nodes: *const Handle, edges: *const c_void, count: usize, mode: c_uint,
        ) |thread, calls| {
            // SAFETY: the arguments are the caller's.
            let begin = || unsafe { calls.cuStreamBeginCaptureToGraph_ptsz(stream, graph, nodes, edges, count, mode) };
            // SAFETY: 1. is the caller's promise.
            unsafe { begin_capture(thread, calls, per_thread(stream), begin) }
        }

        /// Ends a capture; its memory belongs to the graph.
        fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let end = || unsafe { calls.cuStreamEndCapture(stream, graph) };
            // SAFETY: 1. is the caller's promise.
            unsafe { end_capture(calls, stream, graph, end) }
        }

        /// The same, where null is the thread's default stream.
        fn cuStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let end = || unsafe { calls.cuStreamEndCapture_ptsz(stream, graph) };
            // SAFETY: 1. is the caller's promise.
            unsafe { end_capture(calls, per_thread(stream), graph, end) }
        }

        /// A new stream, or one that the program destroyed.
        fn cuStreamCreate(stream: *mut Handle, flags: c_uint) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let create = || unsafe { calls.cuStreamCreate(stream, flags) };
            // SAFETY: 1. is the caller's promise.
            unsafe { create_stream(calls, stream, flags, 0, create) }
        }

        /// The same with a priority.
        fn cuStreamCreateWithPriority(stream: *mut Handle, flags: c_uint, priority: c_int) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let create = || unsafe { calls.cuStreamCreateWithPriority(stream, flags, priority) };
            // SAFETY: 1. is the caller's promise.
            unsafe { create_stream(calls, stream, flags, priority, create) }
        }

        /// Keeps the stream for its memory.
        fn cuStreamDestroy_v2(stream: Handle) |_, calls| {
            destroy_stream(calls, stream)
        }

        /// Leaves the device to the driver.
        fn cuDevicePrimaryCtxReset_v2(device: c_int) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let reset = || unsafe { calls.cuDevicePrimaryCtxReset_v2(device) };
            served::reset_by(u32::try_from(device).unwrap_or(u32::MAX), reset)
        }

        /// Functions by name; those of the front for the calls that it answers.
        fn cuGetProcAddress(
            symbol: *const c_char, function: *mut *const c_void, version: c_int, flags: c_ulonglong,
        ) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let status = unsafe { calls.cuGetProcAddress(symbol, function, version, flags) };
            // SAFETY: 1. and 2. the driver has read and written them.
            unsafe { entry_points::replace(status, symbol, function, version, flags) }
        }

        /// The same, with a reason for functions that are not found.
        fn cuGetProcAddress_v2(
            symbol: *const c_char, function: *mut *const c_void, version: c_int, flags: c_ulonglong, found: *mut c_uint,
        ) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let status = unsafe { calls.cuGetProcAddress_v2(symbol, function, version, flags, found) };
            // SAFETY: 1. and 2. the driver has read and written them.
            unsafe { entry_points::replace(status, symbol, function, version, flags) }
        }
    }
    called {
        fn cuCtxGetCurrent(context: *mut Handle);
        fn cuCtxGetDevice(device: *mut c_int);
        fn cuCtxPopCurrent_v2(context: *mut Handle);
        fn cuCtxPushCurrent_v2(context: Handle);
        fn cuDeviceGetDefaultMemPool(pool: *mut Handle, device: c_int);
        fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int);
        fn cuDevicePrimaryCtxRelease_v2(device: c_int);
        fn cuGraphDestroy(graph: Handle);
        fn cuGraphRetainUserObject(graph: Handle, object: Handle, count: c_uint, flags: c_uint);
        fn cuStreamGetCtx(stream: Handle, context: *mut Handle);
        fn cuStreamQuery(stream: Handle);
        fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
        fn cuStreamIsCapturing(stream: Handle, status: *mut c_uint);
        fn cuStreamSynchronize(stream: Handle);
        fn cuUserObjectCreate(
            object: *mut Handle, data: *mut c_void, destroy: Destructor, count: c_uint, flags: c_uint,
        );
    }
}
