//! The calls of libcuda that the front answers.

#![expect(non_snake_case, reason = "the functions keep their C names")]

mod entry_points;

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::Arc;
use std::{ptr, slice};

use cachette_hal::load::Candidate;
use cachette_hal::{Backend, LoadError, StreamRef};
use cachette_hal_cuda::CudaBackend;
use cachette_process::write_line;

use crate::driver::{self, Common, Driver, Handle};
use crate::driver_pools::{self, Properties, Right};
use crate::entry::{Thread, front};
use crate::library::{Behind, Vendor};
use crate::outside::MemoryProperties;
use crate::outside::calls::counted;
use crate::served::{self, Served};
use crate::status::{INVALID_HANDLE, NOT_SUPPORTED, Refusal, SUCCESS, Status};
use crate::{memory, outside};

static CUDA: Behind<Calls> = Behind::new(Vendor {
    backend: "cuda",
    stem: "libcuda.so",
    variable: "CACHETTE_CUDA_LIBRARY",
    run_variable: "CACHETTE_RUN_CUDA",
    candidates: cachette_hal_cuda::candidates,
    load,
    resolve: |library| Calls::resolve(library, ""),
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

/// The CUDA runtime keeps the last error itself.
impl Driver for Calls {
    const UNKNOWN_STREAM: Status = INVALID_HANDLE;

    fn behind() -> &'static Behind<Self> {
        &CUDA
    }

    fn common(&self) -> &Common {
        &self.common
    }

    #[inline]
    fn current(&self, thread: &Thread) -> Result<&'static Served, Refusal> {
        let context = context(self)?;
        served::current(thread, context.addr(), || served::device(&CUDA, device_of(self, context)?))
    }

    /// Another context takes its streams with it.
    fn device(&self) -> Result<u32, Refusal> {
        device_of(self, context(self)?)
    }

    /// Without the attribute, managed memory lies on the device until it is freed.
    fn pages_managed(&self, device: u32) -> bool {
        const CONCURRENT_MANAGED_ACCESS: c_int = 89;
        let (mut value, number) = (0, c_int::try_from(device).unwrap_or(c_int::MAX));
        // SAFETY: the driver writes one number.
        let asked = unsafe { self.cuDeviceGetAttribute(&raw mut value, CONCURRENT_MANAGED_ACCESS, number) };
        asked == SUCCESS && value != 0
    }

    fn find(&self, thread: &Thread, stream: StreamRef) -> Result<&'static Served, Refusal> {
        let mut own = ptr::null_mut();
        // SAFETY: the stream is the caller's, and the driver writes one handle.
        let status = unsafe { self.cuStreamGetCtx(ptr::with_exposed_provenance_mut(stream.raw()), &raw mut own) };
        if status == INVALID_HANDLE {
            return Err(Refusal::Stream);
        }
        if status != SUCCESS || context(self) == Ok(own) {
            return self.current(thread);
        }
        // SAFETY: it is the context of a live stream.
        if unsafe { self.cuCtxPushCurrent_v2(own) } != SUCCESS {
            return Err(Refusal::Driver);
        }
        let device = device_of(self, own);
        // SAFETY: the driver writes one handle, and the context was pushed above.
        let _ = unsafe { self.cuCtxPopCurrent_v2(&raw mut own) };
        served::device(&CUDA, device?)
    }
}

/// The stream that a function for per-thread default streams means.
fn per_thread(stream: Handle) -> Handle {
    const PER_THREAD: usize = 2;
    if stream.is_null() { ptr::without_provenance_mut(PER_THREAD) } else { stream }
}

counted! {
    front;
    counted {
        cuMemCreate, cuMemRelease, cuMemMap, cuMemUnmap, cuMemRetainAllocationHandle, cuMemImportFromShareableHandle,
        cuMemAllocPitch_v2, cuMemAllocManaged, cuMemHostAlloc, cuMemAllocHost_v2, cuMemFreeHost, cuMemHostRegister_v2,
        cuMemHostUnregister; free: cuMemFree_v2
    }
    "cu";
    shared {
        cuMemAlloc_v2, cuMemFree_v2, cuMemAllocAsync, cuMemAllocFromPoolAsync, cuMemFreeAsync, cuMemGetAddressRange_v2,
        cuMemGetInfo_v2, cuIpcGetMemHandle, cuMemPoolExportPointer, cuMemPoolCreate, cuMemPoolDestroy,
        cuMemPoolSetAccess, cuDeviceSetMemPool, cuStreamBeginCapture_v2, cuStreamEndCapture,
        cuStreamCreateWithPriority, cuStreamDestroy_v2
    }
    answered {
        /// Null is the thread's default stream.
        fn cuMemAllocAsync_ptsz(out: *mut u64, bytes: usize, stream: Handle) |thread, calls| {
            // SAFETY: 1. and 2. are the caller's promises.
            unsafe { driver::allocate(thread, calls, out, bytes, per_thread(stream)) }
        }

        /// Null is the thread's default stream.
        fn cuMemAllocFromPoolAsync_ptsz(out: *mut u64, bytes: usize, pool: Handle, stream: Handle) |thread, calls| {
            // SAFETY: 1. and 2. are the caller's promises.
            unsafe { driver::allocate_from(thread, calls, out, bytes, pool, per_thread(stream)) }
        }

        /// Null is the thread's default stream.
        fn cuMemFreeAsync_ptsz(address: u64, stream: Handle) |thread, calls| {
            // SAFETY: 1. is the caller's promise.
            unsafe { driver::free_on(thread, calls, address, per_thread(stream)) }
        }

        /// Null is the thread's default stream.
        fn cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: c_uint) |thread, calls| {
            // SAFETY: the arguments are the caller's.
            let begin = || unsafe { calls.cuStreamBeginCapture_v2_ptsz(stream, mode) };
            // SAFETY: 1. is the caller's promise.
            unsafe { driver::begin_capture(thread, calls, per_thread(stream), begin) }
        }

        /// Begins a capture into a graph that exists.
        fn cuStreamBeginCaptureToGraph(
            stream: Handle, graph: Handle, nodes: *const Handle, edges: *const c_void, count: usize, mode: c_uint,
        ) |thread, calls| {
            // SAFETY: the arguments are the caller's.
            let begin = || unsafe { calls.cuStreamBeginCaptureToGraph(stream, graph, nodes, edges, count, mode) };
            // SAFETY: 1. is the caller's promise.
            unsafe { driver::begin_capture(thread, calls, stream, begin) }
        }

        /// Null is the thread's default stream.
        fn cuStreamBeginCaptureToGraph_ptsz(
            stream: Handle, graph: Handle, nodes: *const Handle, edges: *const c_void, count: usize, mode: c_uint,
        ) |thread, calls| {
            // SAFETY: the arguments are the caller's.
            let begin = || unsafe { calls.cuStreamBeginCaptureToGraph_ptsz(stream, graph, nodes, edges, count, mode) };
            // SAFETY: 1. is the caller's promise.
            unsafe { driver::begin_capture(thread, calls, per_thread(stream), begin) }
        }

        /// Null is the thread's default stream.
        fn cuStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let end = || unsafe { calls.cuStreamEndCapture_ptsz(stream, graph) };
            // SAFETY: 1. is the caller's promise.
            unsafe { driver::end_capture(calls, per_thread(stream), graph, end) }
        }

        /// A new stream, or one that the program destroyed.
        fn cuStreamCreate(stream: *mut Handle, flags: c_uint) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let create = || unsafe { calls.cuStreamCreate(stream, flags) };
            // SAFETY: 1. is the caller's promise.
            unsafe { driver::create_stream(calls, stream, flags, 0, create) }
        }

        /// Leaves the device to the driver.
        fn cuDevicePrimaryCtxReset_v2(device: c_int) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let reset = || unsafe { calls.cuDevicePrimaryCtxReset_v2(device) };
            let device = u32::try_from(device).unwrap_or(u32::MAX);
            served::reset_by(device, reset)?;
            // Physical memory is of no context.
            outside::forget(device, false);
            Ok(())
        }

        /// Functions by name; those of the front for the calls that it answers.
        fn cuGetProcAddress(
            symbol: *const c_char, function: *mut *const c_void, version: c_int, flags: c_ulonglong,
        ) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let status = unsafe { calls.cuGetProcAddress(symbol, function, version, flags) };
            // SAFETY: 1. and 2. the driver has read and written them.
            unsafe { driver::replace(status, symbol, function, |symbol| entry_points::find(symbol, version, flags)) }
        }

        /// The same, with a reason for functions that are not found.
        fn cuGetProcAddress_v2(
            symbol: *const c_char, function: *mut *const c_void, version: c_int, flags: c_ulonglong, found: *mut c_uint,
        ) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let status = unsafe { calls.cuGetProcAddress_v2(symbol, function, version, flags, found) };
            // SAFETY: 1. and 2. the driver has read and written them.
            unsafe { driver::replace(status, symbol, function, |symbol| entry_points::find(symbol, version, flags)) }
        }
    }
    called {
        fn cuCtxGetCurrent(context: *mut Handle);
        fn cuCtxGetDevice(device: *mut c_int);
        fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
        fn cuCtxPopCurrent_v2(context: *mut Handle);
        fn cuCtxPushCurrent_v2(context: Handle);
        fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int);
        fn cuDevicePrimaryCtxRelease_v2(device: c_int);
        fn cuStreamGetCtx(stream: Handle, context: *mut Handle);
    }
}
