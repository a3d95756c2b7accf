//! Host functions in stream order.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cachette_hal::{Capture, CaptureStatus, Error, ErrorKind, HostCalls, HostFunction, Result, StreamRef};

use crate::device::{HipDevice, handle};

/// Runs a function that was boxed twice, and frees it.
///
/// # Safety
///
/// `data` is what [`Box::into_raw`] made of a boxed [`HostFunction`], and is passed here once.
unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: the caller's promise.
    let function = unsafe { Box::from_raw(data.cast::<HostFunction>()) };
    // A panic ends here: it was reported when it began, and must not enter the driver.
    let _ = catch_unwind(AssertUnwindSafe(function));
}

impl HostCalls for HipDevice {
    unsafe fn call_host(&self, stream: StreamRef, function: HostFunction) -> Result<()> {
        let call = "hipLaunchHostFunc";
        if self.driver.symbols.capture.is_ok() {
            // SAFETY: 1. the caller's promise.
            let status = unsafe { self.capture_status(stream) }?;
            if status != CaptureStatus::Idle {
                return Err(Error::new(ErrorKind::CaptureForbids, call));
            }
        }
        // Boxed once more, for a fat pointer does not fit into one word.
        let data = Box::into_raw(Box::new(function));
        // SAFETY: 1. the caller's promise; the stream passes the function to `run` once.
        let queued = self.call_in(&self.driver.symbols.host_calls, call, |hip| unsafe {
            (hip.hipLaunchHostFunc)(handle(stream), Some(run), data.cast())
        });
        if queued.is_err() {
            // SAFETY: it was boxed above, and what was not queued does not run.
            drop(unsafe { Box::from_raw(data) });
        }
        queued
    }
}
