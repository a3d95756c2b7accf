//! Host functions in stream order.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cachette_hal::{Capture, CaptureStatus, Error, ErrorKind, HostCalls, HostFunction, Reason, Result, StreamRef};

use crate::capture::HipCapture;
use crate::context::Context;
use crate::device::handle;
use crate::symbols::HostCallCalls;

/// Host functions in one device's streams.
#[derive(Debug)]
pub(crate) struct HipHostCalls {
    context: Arc<Context>,
    calls: HostCallCalls,
    /// `None` if streams cannot be captured.
    capture: Option<HipCapture>,
}

impl HipHostCalls {
    /// Checks what the group needs.
    pub(crate) fn probe(context: &Arc<Context>) -> Result<Self, Reason> {
        let capture = HipCapture::probe(context).ok();
        Ok(Self { calls: context.symbols().host_calls?, context: Arc::clone(context), capture })
    }

    /// Rejects a captured stream: its graph would run the function more than once.
    ///
    /// # Safety
    ///
    /// Promise 1.
    unsafe fn check_uncaptured(&self, stream: StreamRef) -> Result<()> {
        let Some(capture) = &self.capture else {
            return Ok(());
        };
        // SAFETY: 1. is the caller's promise.
        if unsafe { capture.capture_status(stream) }? != CaptureStatus::Idle {
            return Err(Error::new(ErrorKind::CaptureForbids, "hipLaunchHostFunc"));
        }
        Ok(())
    }
}

impl HostCalls for HipHostCalls {
    unsafe fn call_host(&self, stream: StreamRef, function: HostFunction) -> Result<()> {
        // SAFETY: 1. is the caller's promise.
        unsafe { self.check_uncaptured(stream) }?;
        // A fat pointer does not fit into the driver's one word, so the function is boxed again.
        let data = Box::into_raw(Box::new(function));
        let launch = self.calls.hipLaunchHostFunc;
        // SAFETY: 1. is the caller's promise; `run` takes what `data` is.
        let queued =
            self.context.call("hipLaunchHostFunc", || unsafe { launch(handle(stream), Some(run), data.cast()) });
        queued.inspect_err(|_| {
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
