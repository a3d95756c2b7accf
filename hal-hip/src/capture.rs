//! Streams captured into graphs.

use std::ffi::c_int;
use std::num::NonZeroU64;
use std::ptr;

use cachette_hal::{
    Capture, CaptureId, CaptureMode, CaptureStatus, Error, ErrorKind, Graph, Result, StreamRef,
};

use cachette_hal::owned::RelaxedCapture;

use crate::device::{HipDevice, handle};
use crate::symbols::CaptureSymbols;
use crate::types::{
    CAPTURE_MODE_GLOBAL, CAPTURE_MODE_RELAXED, CAPTURE_MODE_THREAD_LOCAL, CAPTURE_STATUS_ACTIVE,
    CAPTURE_STATUS_NONE, Status,
};

impl HipDevice {
    fn capture_call(
        &self,
        call: &'static str,
        make: impl FnOnce(&CaptureSymbols) -> Status,
    ) -> Result<()> {
        self.call_in(&self.driver.symbols.capture, call, make)
    }
}

impl Capture for HipDevice {
    unsafe fn capture_status(&self, stream: StreamRef) -> Result<CaptureStatus> {
        let call = "hipStreamGetCaptureInfo_v2";
        let stream = handle(stream);
        // It cannot be captured, and asking is an error while a stream that waits for it is.
        if stream == StreamRef::DEFAULT.raw() {
            return Ok(CaptureStatus::Idle);
        }
        let (mut status, mut id) = (CAPTURE_STATUS_NONE, 0);
        let (graph, nodes, count) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: 1. the caller's promise; the out-parameters outlive the call, or are null as they may be.
        self.capture_call(call, |hip| unsafe {
            (hip.hipStreamGetCaptureInfo_v2)(
                stream,
                &raw mut status,
                &raw mut id,
                graph,
                nodes,
                count,
            )
        })?;
        match (status, NonZeroU64::new(id)) {
            (CAPTURE_STATUS_NONE, _) => Ok(CaptureStatus::Idle),
            (CAPTURE_STATUS_ACTIVE, Some(id)) => Ok(CaptureStatus::Active(CaptureId(id))),
            (CAPTURE_STATUS_ACTIVE, None) => Err(Error::new(ErrorKind::Other, call)),
            _ => Ok(CaptureStatus::Broken),
        }
    }

    unsafe fn begin_capture(&self, stream: StreamRef, mode: CaptureMode) -> Result<()> {
        // SAFETY: 1. the caller's promise.
        self.capture_call("hipStreamBeginCapture", |hip| unsafe {
            (hip.hipStreamBeginCapture)(handle(stream), to_number(mode))
        })
    }

    unsafe fn end_capture(&self, stream: StreamRef) -> Result<Graph> {
        let (mut graph, mut exec) = (0, 0);
        // SAFETY: 1. the caller's promise; the out-parameter outlives the call.
        self.capture_call("hipStreamEndCapture", |hip| unsafe {
            (hip.hipStreamEndCapture)(handle(stream), &raw mut graph)
        })?;
        if graph == 0 {
            return Err(Error::new(ErrorKind::CaptureBroken, "hipStreamEndCapture"));
        }
        // Making a graph ready allocates, which another stream's capture would forbid.
        let relaxed = RelaxedCapture::enter(self);
        let ready = relaxed.as_ref().map_err(|error| *error).and_then(|_| {
            // SAFETY: the graph was made above; the out-parameter outlives the call.
            self.capture_call("hipGraphInstantiateWithFlags", |hip| unsafe {
                (hip.hipGraphInstantiateWithFlags)(&raw mut exec, graph, 0)
            })
        });
        drop(relaxed);
        // What is ready to launch does not need what it was made from.
        // SAFETY: the graph was made above and is destroyed once.
        let destroyed = self.capture_call("hipGraphDestroy", |hip| unsafe {
            (hip.hipGraphDestroy)(graph)
        });
        ready?;
        let exec = Graph::from_raw(exec);
        if let Err(error) = destroyed {
            // SAFETY: 1. it was made above, and nobody else knows of it.
            unsafe { self.destroy_graph(exec) }?;
            return Err(error);
        }
        Ok(exec)
    }

    unsafe fn launch(&self, graph: &Graph, stream: StreamRef) -> Result<()> {
        // SAFETY: 1, 3 and 4. The caller's promises.
        self.capture_call("hipGraphLaunch", |hip| unsafe {
            (hip.hipGraphLaunch)(graph.raw(), handle(stream))
        })
    }

    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()> {
        // SAFETY: 1. the caller's promise.
        self.capture_call("hipGraphExecDestroy", |hip| unsafe {
            (hip.hipGraphExecDestroy)(graph.raw())
        })
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        let call = "hipThreadExchangeStreamCaptureMode";
        let mut mode = to_number(mode);
        // SAFETY: the parameter is read and written in place, and outlives the call.
        self.capture_call(call, |hip| unsafe {
            (hip.hipThreadExchangeStreamCaptureMode)(&raw mut mode)
        })?;
        match mode {
            CAPTURE_MODE_GLOBAL => Ok(CaptureMode::Global),
            CAPTURE_MODE_THREAD_LOCAL => Ok(CaptureMode::ThreadLocal),
            CAPTURE_MODE_RELAXED => Ok(CaptureMode::Relaxed),
            _ => Err(Error::new(ErrorKind::Other, call)),
        }
    }
}

const fn to_number(mode: CaptureMode) -> c_int {
    match mode {
        CaptureMode::Global => CAPTURE_MODE_GLOBAL,
        CaptureMode::ThreadLocal => CAPTURE_MODE_THREAD_LOCAL,
        CaptureMode::Relaxed => CAPTURE_MODE_RELAXED,
    }
}
