//! Host functions in stream order.

use cachette_hal::{Error, ErrorKind, HostCalls, HostFunction, Result, StreamRef, queue_host_function};
use cudarc::driver::sys::CUstreamCaptureStatus as Captured;

use crate::context::Group;
use crate::status::check;
use crate::symbols::HostCallCalls;
use crate::types::pointer;

const IDLE: u32 = Captured::CU_STREAM_CAPTURE_STATUS_NONE as u32;

pub(crate) type CudaHostCalls = Group<HostCallCalls>;

impl CudaHostCalls {
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
        queue_host_function(function, |run, data| {
            // SAFETY: 1. is the caller's promise; `run` takes `data`.
            let status = unsafe { (self.calls.cuLaunchHostFunc)(pointer(stream.raw()), Some(run), data) };
            check("cuLaunchHostFunc", status)
        })
    }
}
