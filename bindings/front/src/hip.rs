//! The calls of libamdhip64 that the front answers.

#![expect(non_snake_case, reason = "the functions keep their C names")]

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::Arc;
use std::{ptr, slice};

use cachette::OutsideKind;
use cachette_hal::load::Candidate;
use cachette_hal::{Backend, LoadError, StreamRef};
use cachette_hal_hip::HipBackend;
use cachette_hal_hip::types::{Extent, PitchedPointer};
use cachette_process::write_line;

use crate::driver::{self, Common, Driver, Handle};
use crate::driver_pools::{self, Properties, Right};
use crate::entry::{End, Thread, front};
use crate::library::{Behind, Vendor};
use crate::outside::MemoryProperties;
use crate::outside::calls::counted;
use crate::served::{self, Served};
use crate::status::{INVALID_HANDLE, NOT_SUPPORTED, Refusal, SUCCESS, Status};
use crate::{captures, last_error, memory, outside};

/// HIP's status for a stream that does not exist.
const CONTEXT_IS_DESTROYED: Status = 709;
/// The state of a stream that is captured.
const ACTIVE: c_uint = 1;

static HIP: Behind<Calls> = Behind::new(Vendor {
    backend: "hip",
    stem: "libamdhip64",
    variable: "CACHETTE_HIP_LIBRARY",
    run_variable: "CACHETTE_RUN_HIP",
    candidates: cachette_hal_hip::candidates,
    load,
    resolve: |library| Calls::resolve(library, ""),
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

impl Driver for Calls {
    const UNKNOWN_STREAM: Status = CONTEXT_IS_DESTROYED;

    fn behind() -> &'static Behind<Self> {
        &HIP
    }

    fn common(&self) -> &Common {
        &self.common
    }

    #[inline]
    fn current(&self, thread: &Thread) -> Result<&'static Served, Refusal> {
        let device = self.device()?;
        // Zero is no device.
        served::current(thread, device as usize + 1, || served::device(&HIP, device))
    }

    #[inline]
    fn device(&self) -> Result<u32, Refusal> {
        let mut device = 0;
        // SAFETY: the driver writes one number.
        match unsafe { self.hipGetDevice(&raw mut device) } {
            SUCCESS => u32::try_from(device).map_err(|_| Refusal::Driver),
            _ => Err(Refusal::Driver),
        }
    }

    /// Since 7.0 the driver makes physical memory on the current device, whatever device is named.
    fn physical_device(&self, named: u32) -> Result<u32, Refusal> {
        if last_error::version(self) < last_error::LAST_REAL_ERROR { Ok(named) } else { self.device() }
    }

    fn find(&self, thread: &Thread, stream: StreamRef) -> Result<&'static Served, Refusal> {
        let mut own = 0;
        // SAFETY: the stream is the caller's, and the driver writes one number.
        let ask = || unsafe { self.hipStreamGetDevice(ptr::with_exposed_provenance_mut(stream.raw()), &raw mut own) };
        let status = self.quietly(ask);
        match u32::try_from(own) {
            _ if status == CONTEXT_IS_DESTROYED => Err(Refusal::Stream),
            Ok(own) if status == SUCCESS && own != self.device()? => served::device(&HIP, own),
            _ => self.current(thread),
        }
    }

    fn quietly(&self, call: impl FnOnce() -> Status) -> Status {
        last_error::quietly(self, call)
    }

    #[inline]
    fn leave(&self, end: End) {
        last_error::leave(self, end);
    }

    /// The driver has another status of an unknown stream here.
    fn ordered(refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::Stream => Refusal::Status(INVALID_HANDLE),
            refusal => refusal,
        }
    }

    /// The end of a second capture frees all streams of the first.
    fn detach(&self, stream: Handle) {
        if !self.is_captured(stream) {
            return;
        }
        self.relaxed(|| {
            let mut status = 0;
            // SAFETY: the driver writes one number.
            let ask = || unsafe { self.common.StreamIsCapturing(stream, &raw mut status) };
            if self.quietly(ask) == SUCCESS && status == ACTIVE {
                // Not all streams were joined. A wait is forbidden, and breaks the capture.
                // SAFETY: the stream lives.
                self.quietly(|| unsafe { self.common.StreamSynchronize(stream) });
            }
            let mut graph = ptr::null_mut();
            // SAFETY: the stream lives.
            let begin = || unsafe { self.hipStreamBeginCapture(stream, captures::RELAXED) };
            if self.quietly(begin) == SUCCESS && self.end_capture(stream, &raw mut graph) == SUCCESS {
                self.destroy_graph(graph);
            }
        });
    }
}

counted! {
    front;
    counted {
        hipMemCreate, hipMemRelease, hipMemMap, hipMemUnmap, hipMemRetainAllocationHandle,
        hipMemImportFromShareableHandle, hipMemAllocPitch, hipMallocManaged, hipHostMalloc, hipMallocHost, hipHostFree,
        hipHostRegister, hipHostUnregister; free: hipFree
    }
    "hip";
    shared {
        hipMalloc, hipFree, hipMallocAsync, hipMallocFromPoolAsync, hipFreeAsync, hipMemGetAddressRange, hipMemGetInfo,
        hipIpcGetMemHandle, hipMemPoolExportPointer, hipMemPoolCreate, hipMemPoolDestroy, hipMemPoolSetAccess,
        hipDeviceSetMemPool, hipStreamBeginCapture, hipStreamEndCapture, hipStreamCreateWithPriority, hipStreamDestroy
    }
    answered {
        /// A new stream, or one that the program destroyed.
        fn hipStreamCreate(stream: *mut Handle) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let create = || unsafe { calls.hipStreamCreate(stream) };
            // SAFETY: 1. is the caller's promise.
            unsafe { driver::create_stream(calls, stream, 0, 0, create) }
        }

        /// The same with flags.
        fn hipStreamCreateWithFlags(stream: *mut Handle, flags: c_uint) |_, calls| {
            // SAFETY: the arguments are the caller's.
            let create = || unsafe { calls.hipStreamCreateWithFlags(stream, flags) };
            // SAFETY: 1. is the caller's promise.
            unsafe { driver::create_stream(calls, stream, flags, 0, create) }
        }

        /// Leaves the device to the driver.
        fn hipDeviceReset() |_, calls| {
            // SAFETY: the caller's promise.
            let (device, reset) = (calls.device()?, || unsafe { calls.hipDeviceReset() });
            served::reset_by(device, reset)?;
            outside::forget(device, true);
            Ok(())
        }

        /// Memory of the device with flags.
        fn hipExtMallocWithFlags(out: *mut u64, bytes: usize, flags: c_uint) |thread, calls| {
            // SAFETY: the arguments are the caller's.
            let call = || unsafe { calls.hipExtMallocWithFlags(out, bytes, flags) };
            let call = ("hipExtMallocWithFlags", call);
            // SAFETY: 1. the driver has written it.
            unsafe { outside::allocate(thread, calls, OutsideKind::Device, out, bytes, call) }
        }

        /// Rows of memory.
        fn hipMallocPitch(out: *mut u64, pitch: *mut usize, width: usize, rows: usize) |thread, calls| {
            // SAFETY: the arguments are the caller's.
            let call = || unsafe { calls.hipMallocPitch(out, pitch, width, rows) };
            // SAFETY: the driver has just given it.
            let free = |address| unsafe { calls.hipFree(address) };
            let call = ("hipMallocPitch", call);
            // SAFETY: 1. the driver has written them.
            unsafe { outside::allocate_pitched(thread, calls, (out, pitch), (width, rows), call, free) }
        }

        /// Layers of rows.
        fn hipMalloc3D(out: *mut PitchedPointer, extent: Extent) |thread, calls| {
            if out.is_null() {
                return Err(Refusal::Driver);
            }
            // SAFETY: the arguments are the caller's.
            let call = || unsafe { calls.hipMalloc3D(out, extent) };
            // SAFETY: the driver has just given it.
            let free = |address| unsafe { calls.hipFree(address) };
            // SAFETY: it is not null, and otherwise valid.
            let address = unsafe { &raw mut (*out).address };
            // SAFETY: as above.
            let pitch = unsafe { &raw mut (*out).pitch };
            let rows = extent.height.checked_mul(extent.depth).ok_or(Refusal::Driver)?;
            let call = ("hipMalloc3D", call);
            // SAFETY: 1. the driver has written them.
            unsafe { outside::allocate_pitched(thread, calls, (address, pitch), (extent.width, rows), call, free) }
        }

        /// Another name of `hipHostMalloc`.
        fn hipHostAlloc(out: *mut *mut c_void, bytes: usize, flags: c_uint) |thread, calls| {
            // SAFETY: the arguments are the caller's.
            let call = || unsafe { calls.hipHostAlloc(out, bytes, flags) };
            // SAFETY: 1. the driver has written it.
            unsafe { outside::allocate_host(thread, calls, out, bytes, ("hipHostAlloc", call)) }
        }

        /// Another name of `hipMallocHost`.
        fn hipMemAllocHost(out: *mut *mut c_void, bytes: usize) |thread, calls| {
            // SAFETY: the arguments are the caller's.
            let call = || unsafe { calls.hipMemAllocHost(out, bytes) };
            // SAFETY: 1. the driver has written it.
            unsafe { outside::allocate_host(thread, calls, out, bytes, ("hipMemAllocHost", call)) }
        }

        /// Another name of `hipHostFree`.
        fn hipFreeHost(at: *mut c_void) |_, calls| {
            // SAFETY: the arguments are the caller's.
            outside::free(Refusal::Driver, at.addr() as u64, || unsafe { calls.hipFreeHost(at) })
        }

        /// The last error, taken away.
        fn hipGetLastError() |_, calls| {
            Err(Refusal::Asked(last_error::get(calls)))
        }

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
            // SAFETY: 1. and 2. the driver has read and written them.
            unsafe { driver::replace(status, symbol, function, own) }
        }
    }
    called {
        fn hipRuntimeGetVersion(version: *mut c_int);
        fn hipSetDevice(device: c_int);
        fn hipGetDevice(device: *mut c_int);
        fn hipStreamGetDevice(stream: Handle, device: *mut c_int);
    }
}
