//! The calling thread's current device, borrowed for one call of a library that works on the current one.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use cachette_hal::{LoadError, Ordinal, Vendor, symbol_table};

use super::SourceError;
use super::convert::number;
use super::library::Sought;

const CUDA: Sought = Sought { what: "the NVIDIA driver", names: &["libcuda.so.1"], variable: "CACHETTE_CUDA_LIBRARY" };
const HIP: Sought = Sought {
    what: "the HIP runtime",
    names: &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"],
    variable: "CACHETTE_HIP_LIBRARY",
};

symbol_table! {
    /// What of libcuda makes a primary context current.
    pub(crate) struct CudaCalls {
        required {
            init as "cuInit": fn(flags: u32) -> c_int;
            device as "cuDeviceGet": fn(device: *mut c_int, ordinal: c_int) -> c_int;
            retain as "cuDevicePrimaryCtxRetain":
                fn(context: *mut *mut c_void, device: c_int) -> c_int;
            release as "cuDevicePrimaryCtxRelease_v2": fn(device: c_int) -> c_int;
            push as "cuCtxPushCurrent_v2": fn(context: *mut c_void) -> c_int;
            pop as "cuCtxPopCurrent_v2": fn(context: *mut *mut c_void) -> c_int;
        }
        optional {}
    }
}

symbol_table! {
    /// What of libamdhip64 makes a device current.
    pub(crate) struct HipCalls {
        required {
            get as "hipGetDevice": fn(device: *mut c_int) -> c_int;
            set as "hipSetDevice": fn(device: c_int) -> c_int;
        }
        optional {}
    }
}

/// Makes devices of one vendor current.
#[derive(Debug)]
pub(crate) enum Current {
    /// NVIDIA's, by the primary context, which the vendor's own runtime takes for the current device.
    Cuda(Contexts),
    /// AMD's, by number.
    Hip(HipCalls),
}

impl Current {
    /// Finds the functions of the vendor's driver.
    pub(crate) fn load(vendor: Vendor) -> Result<Self, SourceError> {
        match vendor {
            Vendor::Nvidia => Contexts::load().map(Self::Cuda),
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
    pub(crate) fn enter(&self, device: Ordinal) -> Result<Entered<'_>, SourceError> {
        let number = number(device)?;
        let undo = match self {
            Self::Cuda(contexts) => {
                let context = contexts.context(number)?;
                // SAFETY: the context is retained as long as `contexts` lives.
                let status = unsafe { (contexts.calls.push)(context) };
                check("cuCtxPushCurrent_v2", status)?;
                Undo::Pop(&contexts.calls)
            }
            Self::Hip(calls) => {
                let mut before = 0;
                // SAFETY: the runtime writes one number.
                check("hipGetDevice", unsafe { (calls.get)(&raw mut before) })?;
                // SAFETY: it takes a number alone.
                check("hipSetDevice", unsafe { (calls.set)(number) })?;
                Undo::Set(calls, before)
            }
        };
        let thread = PhantomData;
        Ok(Entered { undo, thread })
    }
}

/// The primary contexts that were needed so far.
#[derive(Debug)]
pub(crate) struct Contexts {
    calls: CudaCalls,
    /// Devices and the addresses of their contexts, each retained once.
    retained: Mutex<Vec<(c_int, usize)>>,
}

impl Contexts {
    fn load() -> Result<Self, SourceError> {
        let missing = |error: LoadError| CUDA.missing(error);
        let calls = CudaCalls::resolve(&CUDA.find()?).map_err(missing)?;
        // SAFETY: the only flag defined is none.
        check("cuInit", unsafe { (calls.init)(0) })?;
        let retained = Mutex::default();
        Ok(Self { calls, retained })
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

impl Drop for Contexts {
    fn drop(&mut self) {
        let retained = self.retained.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (device, _) in retained.drain(..) {
            // A driver that is shut down says so, and has let go of the context itself.
            // SAFETY: it was retained once, by `context`.
            let _ = unsafe { (self.calls.release)(device) };
        }
    }
}

/// Keeps a device current on this thread; dropped, it puts back what was current before.
#[must_use = "dropped at once, it changes nothing"]
#[derive(Debug)]
pub(crate) struct Entered<'c> {
    undo: Undo<'c>,
    /// What is current is a matter of one thread.
    thread: PhantomData<*const ()>,
}

#[derive(Debug)]
enum Undo<'c> {
    Pop(&'c CudaCalls),
    Set(&'c HipCalls, c_int),
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // Either can only fail where the driver is shut down, and then nothing is current.
        match self.undo {
            Undo::Pop(calls) => {
                let mut popped = ptr::null_mut();
                // It pops what `enter` pushed, or what the library has put in its place.
                // SAFETY: the driver writes one handle.
                let _ = unsafe { (calls.pop)(&raw mut popped) };
            }
            Undo::Set(calls, before) => {
                // SAFETY: it takes a number alone.
                let _ = unsafe { (calls.set)(before) };
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
