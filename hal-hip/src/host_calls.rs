//! Host functions in stream order.

use std::sync::Arc;

use cachette_hal::{
    Capture, CaptureStatus, Error, ErrorKind, HostCalls, HostFunction, Reason, Result, StreamRef, queue_host_function,
};

use crate::capture::HipCapture;
use crate::context::{Context, handle};
use crate::symbols::HostCallCalls;

#[derive(Debug)]
pub(crate) struct HipHostCalls {
    context: Arc<Context>,
    calls: HostCallCalls,
    /// `None` if streams cannot be captured.
    capture: Option<HipCapture>,
}

impl HipHostCalls {
    /// Checks the requirements of the group.
    pub(crate) fn probe(context: &Arc<Context>) -> Result<Self, Reason> {
        let capture = HipCapture::new(context, context.symbols().capture).ok();
        Ok(Self { calls: context.symbols().host_calls?, context: Arc::clone(context), capture })
    }

    /// Rejects a captured stream: its graph would run the function more than once.
    ///
    /// # Safety
    ///
    /// Promise 1.
    unsafe fn check_uncaptured(&self, stream: StreamRef) -> Result<()> {
        let Some(capture) = &self.capture else { return Ok(()) };
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
        queue_host_function(function, |run, data| {
            let launch = self.calls.hipLaunchHostFunc;
            // SAFETY: 1. is the caller's promise; `run` takes `data`.
            self.context.call("hipLaunchHostFunc", || unsafe { launch(handle(stream), Some(run), data) })
        })
    }
}
