//! Makes a device current on the calling thread around one call of a vendor's library.
//!
//! `cachette-hal-cuda` and `cachette-hal-hip` do the same for an open device. A source has no open device: it serves
//! every device of its vendor, and also with drivers that are too old for those crates.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use cachette::source::SourceError;
use cachette_hal::{Ordinal, Vendor, symbol_table};

use crate::convert::number;
use crate::library::VendorLibrary;

const CUDA: VendorLibrary =
    VendorLibrary { product: "the NVIDIA driver", names: &["libcuda.so.1"], variable: "CACHETTE_CUDA_LIBRARY" };
const HIP: VendorLibrary = VendorLibrary {
    product: "the HIP runtime",
    names: &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"],
    variable: "CACHETTE_HIP_LIBRARY",
};

symbol_table! {
    /// The functions of libcuda that make a primary context current.
    pub(crate) struct CudaCalls {
        required {
            init as "cuInit": fn(flags: u32) -> c_int;
            device as "cuDeviceGet": fn(device: *mut c_int, ordinal: c_int) -> c_int;
            retain as "cuDevicePrimaryCtxRetain": fn(context: *mut *mut c_void, device: c_int) -> c_int;
            release as "cuDevicePrimaryCtxRelease_v2": fn(device: c_int) -> c_int;
            push as "cuCtxPushCurrent_v2": fn(context: *mut c_void) -> c_int;
            pop as "cuCtxPopCurrent_v2": fn(context: *mut *mut c_void) -> c_int;
        }
    }

    /// The functions of libamdhip64 that make a device current.
    pub(crate) struct HipCalls {
        required {
            get as "hipGetDevice": fn(device: *mut c_int) -> c_int;
            set as "hipSetDevice": fn(device: c_int) -> c_int;
        }
    }
}

/// Makes devices of one vendor current.
#[derive(Debug)]
pub(crate) enum CurrentDevice {
    /// NVIDIA: by the primary context, which the CUDA runtime takes for the current device.
    Cuda(PrimaryContexts),
    /// AMD: by number.
    Hip(HipCalls),
}

impl CurrentDevice {
    /// Loads the functions of the vendor's driver.
    pub(crate) fn load(vendor: Vendor) -> Result<Self, SourceError> {
        match vendor {
            Vendor::Nvidia => PrimaryContexts::load().map(Self::Cuda),
            Vendor::Amd => {
                let library = HIP.find()?;
                HipCalls::resolve(&library).map(Self::Hip).map_err(|error| HIP.missing(error))
            }
            other => {
                Err(SourceError::unavailable(format!("{other} devices have no such library"), "use a FunctionSource"))
            }
        }
    }

    /// Makes `device` current on this thread until the guard is dropped.
    pub(crate) fn enter(&self, device: Ordinal) -> Result<CurrentDeviceGuard<'_>, SourceError> {
        let number = number(device)?;
        let previous = match self {
            Self::Cuda(contexts) => {
                let context = contexts.context(number)?;
                // SAFETY: the context is retained as long as `contexts` lives.
                let status = unsafe { (contexts.calls.push)(context) };
                check("cuCtxPushCurrent_v2", status)?;
                PreviousDevice::Pop(&contexts.calls)
            }
            Self::Hip(calls) => {
                let mut previous = 0;
                // SAFETY: the runtime writes one number.
                check("hipGetDevice", unsafe { (calls.get)(&raw mut previous) })?;
                // SAFETY: the only argument is a number.
                check("hipSetDevice", unsafe { (calls.set)(number) })?;
                PreviousDevice::Set(calls, previous)
            }
        };
        Ok(CurrentDeviceGuard { previous, not_send: PhantomData })
    }
}

/// The primary contexts that were retained so far.
#[derive(Debug)]
pub(crate) struct PrimaryContexts {
    calls: CudaCalls,
    /// Devices and the addresses of their contexts, each retained once.
    retained: Mutex<Vec<(c_int, usize)>>,
}

impl PrimaryContexts {
    fn load() -> Result<Self, SourceError> {
        let calls = CudaCalls::resolve(&CUDA.find()?).map_err(|error| CUDA.missing(error))?;
        // SAFETY: zero is the only flag defined.
        check("cuInit", unsafe { (calls.init)(0) })?;
        Ok(Self { calls, retained: Mutex::default() })
    }

    /// The primary context of the device at `ordinal`.
    fn context(&self, ordinal: c_int) -> Result<*mut c_void, SourceError> {
        let mut device = 0;
        // SAFETY: the driver writes one number.
        let status = unsafe { (self.calls.device)(&raw mut device, ordinal) };
        check("cuDeviceGet", status)?;
        let mut retained = self.retained.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, context)) = retained.iter().find(|(known, _)| *known == device) {
            return Ok(ptr::with_exposed_provenance_mut(*context));
        }
        let mut context = ptr::null_mut();
        // SAFETY: the driver writes one handle.
        let status = unsafe { (self.calls.retain)(&raw mut context, device) };
        check("cuDevicePrimaryCtxRetain", status)?;
        retained.push((device, context.expose_provenance()));
        Ok(context)
    }
}

impl Drop for PrimaryContexts {
    fn drop(&mut self) {
        let retained = self.retained.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (device, _) in retained.drain(..) {
            // A driver that is shut down has released the context itself; its error is ignored.
            // SAFETY: `context` retained it once.
            let _ = unsafe { (self.calls.release)(device) };
        }
    }
}

/// Keeps a device current on this thread; dropping it restores the previous one.
#[must_use = "a guard that is dropped at once has no effect"]
#[derive(Debug)]
pub(crate) struct CurrentDeviceGuard<'c> {
    previous: PreviousDevice<'c>,
    /// Each thread has its current device, so the guard must stay on its thread.
    not_send: PhantomData<*const ()>,
}

/// How to restore the previous device.
#[derive(Debug)]
enum PreviousDevice<'c> {
    Pop(&'c CudaCalls),
    Set(&'c HipCalls, c_int),
}

impl Drop for CurrentDeviceGuard<'_> {
    fn drop(&mut self) {
        // Both calls fail only after the driver has shut down, and then no device is current.
        match self.previous {
            PreviousDevice::Pop(calls) => {
                let mut popped = ptr::null_mut();
                // It pops the context that `enter` pushed, or the one that the library has put in its place.
                // SAFETY: the driver writes one handle.
                let _ = unsafe { (calls.pop)(&raw mut popped) };
            }
            PreviousDevice::Set(calls, previous) => {
                // SAFETY: the only argument is a number.
                let _ = unsafe { (calls.set)(previous) };
            }
        }
    }
}

/// Turns a driver's status into a result.
fn check(call: &str, status: c_int) -> Result<(), SourceError> {
    if status == 0 {
        return Ok(());
    }
    Err(SourceError::unavailable(
        format!("the device cannot be made current: {call} failed with status {status}"),
        "check that the driver works and shows the device",
    ))
}
