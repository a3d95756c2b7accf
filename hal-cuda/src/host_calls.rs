//! Host functions in stream order.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cachette_hal::{Error, ErrorKind, HostCalls, HostFunction, Reason, Result, StreamRef};
use cudarc::driver::sys::CUstreamCaptureStatus as Captured;

use crate::context::Context;
use crate::status::check;
use crate::symbols::HostCallCalls;
use crate::types::pointer;

const IDLE: u32 = Captured::CU_STREAM_CAPTURE_STATUS_NONE as u32;

/// Host functions in one device's streams.
#[derive(Debug)]
pub(crate) struct CudaHostCalls {
    context: Arc<Context>,
    calls: HostCallCalls,
}

impl CudaHostCalls {
    /// Checks what the group needs.
    pub(crate) fn probe(context: &Arc<Context>) -> Result<Self, Reason> {
        Ok(Self { calls: context.symbols().host_calls?, context: Arc::clone(context) })
    }

    /// Rejects a captured stream: its graph would run the function more than once.
    ///
    /// # Safety
    ///
    /// Promise 1.
    unsafe fn check_uncaptured(&self, stream: StreamRef) -> Result<()> {
        let mut state = IDLE;
        // SAFETY: 1. is the caller's promise; the driver writes one number.
        let status = unsafe { (self.calls.cuStreamIsCapturing)(pointer(stream.raw()), &raw mut state) };
        check("cuStreamIsCapturing", status)?;
        if state != IDLE {
            return Err(Error::new(ErrorKind::CaptureForbids, "cuLaunchHostFunc"));
        }
        Ok(())
    }
}

impl HostCalls for CudaHostCalls {
    unsafe fn call_host(&self, stream: StreamRef, function: HostFunction) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: 1. is the caller's promise.
        unsafe { self.check_uncaptured(stream) }?;
        // A fat pointer does not fit into the driver's one word, so the function is boxed again.
        let data = Box::into_raw(Box::new(function));
        // SAFETY: 1. is the caller's promise; `run` takes what `data` is.
        let status = unsafe { (self.calls.cuLaunchHostFunc)(pointer(stream.raw()), Some(run), data.cast()) };
        check("cuLaunchHostFunc", status).inspect_err(|_| {
            // SAFETY: the driver refused the function, so it will not run.
            drop(unsafe { Box::from_raw(data) });
        })
    }
}

/// Runs a function once.
///
/// # Safety
///
/// `data` is a `Box<HostFunction>` by its raw pointer, given to one call.
unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: the caller's promise.
    let function = unsafe { Box::from_raw(data.cast::<HostFunction>()) };
    // A panic was reported when it began, and must not unwind into the driver.
    let _ = catch_unwind(AssertUnwindSafe(function));
}
