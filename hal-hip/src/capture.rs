//! Streams captured into graphs.

use std::ffi::c_int;
use std::num::NonZeroU64;
use std::ptr;
use std::slice;

use cachette_hal::{
    Capture, CaptureId, CaptureMode, CaptureNode, CaptureStatus, Device, Error, ErrorKind, Graph, Result, StreamRef,
};

use cachette_hal::owned::RelaxedCapture;

use crate::device::{HipDevice, handle};
use crate::ends::Found;
use crate::symbols::CaptureSymbols;
use crate::types::{
    CAPTURE_MODE_GLOBAL, CAPTURE_MODE_RELAXED, CAPTURE_MODE_THREAD_LOCAL, CAPTURE_STATUS_ACTIVE, CAPTURE_STATUS_NONE,
    GraphHandle, NodeHandle, Status, StreamHandle,
};

/// `hipGraphNodeGetDependencies`.
type NodeDependencies = unsafe extern "C" fn(node: NodeHandle, nodes: *mut NodeHandle, count: *mut usize) -> Status;

impl HipDevice {
    fn capture_call(&self, call: &'static str, make: impl FnOnce(&CaptureSymbols) -> Status) -> Result<()> {
        self.call_in(&self.driver.symbols.capture, call, make)
    }

    /// Asks the function that not every library has.
    fn nodes_call(&self, call: &'static str, make: impl FnOnce(NodeDependencies) -> Status) -> Result<()> {
        let group = self.driver.symbols.capture;
        let function = group.and_then(|group| group.hipGraphNodeGetDependencies());
        self.call_in(&function, call, |function| make(*function))
    }

    /// Ends a capture; one that gives no graph is taken off its streams.
    ///
    /// # Safety
    ///
    /// Promise 1.
    unsafe fn end_once(&self, stream: StreamHandle) -> Result<GraphHandle> {
        let (call, ends) = ("hipStreamEndCapture", &self.driver.ends);
        let over = Error::new(ErrorKind::InvalidValue, call);
        match ends.begin(stream) {
            Found::Busy => return Err(over),
            Found::Left => {
                // SAFETY: 1. the caller's promise.
                let taken_off = unsafe { self.take_off(stream) };
                ends.finish(stream, taken_off.is_err());
                return taken_off.and(Err(over));
            }
            Found::Nothing => {}
        }
        let mut graph = 0;
        // SAFETY: 1. the caller's promise; the out-parameter outlives the call, and no capture is ended twice.
        let ended = self.capture_call(call, |hip| unsafe { (hip.hipStreamEndCapture)(stream, &raw mut graph) });
        let is_broken = ended.is_err_and(|error| error.kind() == ErrorKind::CaptureBroken);
        // What cannot be taken off now is tried again when the stream is next captured, or this called again.
        // SAFETY: 1. the caller's promise.
        let is_left = is_broken && unsafe { self.take_off(stream) }.is_err();
        ends.finish(stream, is_left);
        ended?;
        if graph == 0 {
            return Err(Error::new(ErrorKind::CaptureBroken, call));
        }
        Ok(graph)
    }

    /// Takes a capture that was ended without a graph off its streams.
    ///
    /// The driver leaves it on them. It lets a broken stream be captured again, and the end of that second capture
    /// frees every stream of the first.
    ///
    /// # Safety
    ///
    /// Promise 1.
    unsafe fn take_off(&self, stream: StreamHandle) -> Result<()> {
        // Captures of other streams are not to break.
        let _relaxed = RelaxedCapture::enter(self)?;
        // SAFETY: 1. the caller's promise.
        match unsafe { self.capture_status(StreamRef::from_raw(stream)) }? {
            CaptureStatus::Idle => return Ok(()),
            CaptureStatus::Active(_) => {
                // Not joined back, it is still active. To wait for it is forbidden, and breaks it.
                // SAFETY: 1. the caller's promise.
                let _ = unsafe { self.synchronize(StreamRef::from_raw(stream)) };
            }
            _ => {}
        }
        // SAFETY: 1. the caller's promise.
        self.capture_call("hipStreamBeginCapture", |hip| unsafe {
            (hip.hipStreamBeginCapture)(stream, CAPTURE_MODE_RELAXED)
        })?;
        let mut graph = 0;
        // SAFETY: 1. the caller's promise; the out-parameter outlives the call.
        self.capture_call("hipStreamEndCapture", |hip| unsafe { (hip.hipStreamEndCapture)(stream, &raw mut graph) })?;
        // SAFETY: the graph was made above and is destroyed once.
        self.capture_call("hipGraphDestroy", |hip| unsafe { (hip.hipGraphDestroy)(graph) })
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
            (hip.hipStreamGetCaptureInfo_v2)(stream, &raw mut status, &raw mut id, graph, nodes, count)
        })?;
        told(call, status, id)
    }

    unsafe fn frontier(&self, stream: StreamRef, nodes: &mut Vec<CaptureNode>) -> Result<CaptureStatus> {
        let call = "hipStreamGetCaptureInfo_v2";
        let stream = handle(stream);
        if stream == StreamRef::DEFAULT.raw() {
            return Ok(CaptureStatus::Idle);
        }
        let (mut status, mut id, graph) = (CAPTURE_STATUS_NONE, 0, ptr::null_mut());
        let (mut found, mut count) = (ptr::null(), 0);
        // SAFETY: 1. the caller's promise; the out-parameters outlive the call, or are null as they may be.
        self.capture_call(call, |hip| unsafe {
            (hip.hipStreamGetCaptureInfo_v2)(
                stream,
                &raw mut status,
                &raw mut id,
                graph,
                &raw mut found,
                &raw mut count,
            )
        })?;
        let status = told(call, status, id)?;
        if matches!(status, CaptureStatus::Active(_)) && count > 0 {
            // SAFETY: the library's list is that long, and stays as it is until the next call for the stream.
            let found = unsafe { slice::from_raw_parts(found, count) };
            nodes.extend(found.iter().copied().map(CaptureNode::from_raw));
        }
        Ok(status)
    }

    unsafe fn dependencies(&self, node: CaptureNode, nodes: &mut Vec<CaptureNode>) -> Result<()> {
        let call = "hipGraphNodeGetDependencies";
        let mut count = 0;
        // SAFETY: 1. the caller's promise; the library writes how many there are.
        self.nodes_call(call, |function| unsafe { function(node.raw(), ptr::null_mut(), &raw mut count) })?;
        if count == 0 {
            return Ok(());
        }
        let mut found = vec![0; count];
        let list = found.as_mut_ptr();
        // SAFETY: 1. the caller's promise; there is room for as many as are said to be.
        self.nodes_call(call, |function| unsafe { function(node.raw(), list, &raw mut count) })?;
        let found = found.into_iter().take(count);
        nodes.extend(found.map(CaptureNode::from_raw));
        Ok(())
    }

    unsafe fn begin_capture(&self, stream: StreamRef, mode: CaptureMode) -> Result<()> {
        let stream = handle(stream);
        if self.driver.ends.is_left(stream) {
            // It was ended before, so that this only tries again to take it off its streams, and says so.
            // SAFETY: 1. the caller's promise.
            let _ = unsafe { self.end_once(stream) };
        }
        // SAFETY: 1. the caller's promise.
        self.capture_call("hipStreamBeginCapture", |hip| unsafe {
            (hip.hipStreamBeginCapture)(stream, to_number(mode))
        })
    }

    unsafe fn end_capture(&self, stream: StreamRef) -> Result<Graph> {
        // SAFETY: 1. the caller's promise.
        let graph = unsafe { self.end_once(handle(stream)) }?;
        let mut exec = 0;
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
        let destroyed = self.capture_call("hipGraphDestroy", |hip| unsafe { (hip.hipGraphDestroy)(graph) });
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
        self.capture_call("hipGraphLaunch", |hip| unsafe { (hip.hipGraphLaunch)(graph.raw(), handle(stream)) })
    }

    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()> {
        // SAFETY: 1. the caller's promise.
        self.capture_call("hipGraphExecDestroy", |hip| unsafe { (hip.hipGraphExecDestroy)(graph.raw()) })
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        let call = "hipThreadExchangeStreamCaptureMode";
        let mut mode = to_number(mode);
        // SAFETY: the parameter is read and written in place, and outlives the call.
        self.capture_call(call, |hip| unsafe { (hip.hipThreadExchangeStreamCaptureMode)(&raw mut mode) })?;
        match mode {
            CAPTURE_MODE_GLOBAL => Ok(CaptureMode::Global),
            CAPTURE_MODE_THREAD_LOCAL => Ok(CaptureMode::ThreadLocal),
            CAPTURE_MODE_RELAXED => Ok(CaptureMode::Relaxed),
            _ => Err(Error::new(ErrorKind::Other, call)),
        }
    }
}

/// What the library said of a stream's state and the number of its capture.
fn told(call: &'static str, status: c_int, id: u64) -> Result<CaptureStatus> {
    match (status, NonZeroU64::new(id)) {
        (CAPTURE_STATUS_NONE, _) => Ok(CaptureStatus::Idle),
        (CAPTURE_STATUS_ACTIVE, Some(id)) => Ok(CaptureStatus::Active(CaptureId(id))),
        (CAPTURE_STATUS_ACTIVE, None) => Err(Error::new(ErrorKind::Other, call)),
        _ => Ok(CaptureStatus::Broken),
    }
}

const fn to_number(mode: CaptureMode) -> c_int {
    match mode {
        CaptureMode::Global => CAPTURE_MODE_GLOBAL,
        CaptureMode::ThreadLocal => CAPTURE_MODE_THREAD_LOCAL,
        CaptureMode::Relaxed => CAPTURE_MODE_RELAXED,
    }
}
