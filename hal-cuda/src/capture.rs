//! Streams captured into graphs.

use std::num::NonZeroU64;
use std::ptr;
use std::slice;
use std::sync::Arc;

use cachette_hal::{
    Capture, CaptureId, CaptureMode, CaptureNode, CaptureStatus, Error, ErrorKind, Graph, Reason, Result, StreamRef,
};
use cudarc::driver::sys::{
    CUgraph, CUgraphInstantiate_flags as Instantiate, CUgraphNode, CUstreamCaptureMode as Mode,
    CUstreamCaptureStatus as Captured,
};

use crate::context::Context;
use crate::status::{CAPTURE_IMPLICIT, check};
use crate::symbols::CaptureCalls;
use crate::types::{Status, handle, pointer};

/// Memory that a graph allocates and does not free is freed when the graph is launched again.
const FLAGS: u64 = Instantiate::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0 as u64;

const ACTIVE: u32 = Captured::CU_STREAM_CAPTURE_STATUS_ACTIVE as u32;
const IDLE: u32 = Captured::CU_STREAM_CAPTURE_STATUS_NONE as u32;

const GLOBAL: u32 = Mode::CU_STREAM_CAPTURE_MODE_GLOBAL as u32;
const THREAD_LOCAL: u32 = Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as u32;
const RELAXED: u32 = Mode::CU_STREAM_CAPTURE_MODE_RELAXED as u32;

/// Capture of one device's streams.
#[derive(Debug)]
pub(crate) struct CudaCapture {
    context: Arc<Context>,
    calls: CaptureCalls,
}

impl CudaCapture {
    /// Looks for what the group needs.
    pub(crate) fn probe(context: &Arc<Context>) -> Result<Self, Reason> {
        Ok(Self { calls: context.driver().capture?, context: Arc::clone(context) })
    }

    /// Puts the thread into `mode`, and returns the mode it was in.
    fn exchange(&self, mut mode: u32) -> Result<u32> {
        // SAFETY: the driver reads and writes one number.
        let status = unsafe { (self.calls.exchange_mode)(&raw mut mode) };
        check("cuThreadExchangeStreamCaptureMode", status)?;
        Ok(mode)
    }

    /// Makes a recording ready to launch.
    ///
    /// Done in relaxed mode: the driver may allocate here, which another capture must not be broken by.
    fn instantiate(&self, recording: CUgraph) -> Result<Graph> {
        let mode = self.exchange(RELAXED)?;
        let mut executable = ptr::null_mut();
        // SAFETY: the recording lives, and the driver writes one handle.
        let status = unsafe { (self.calls.instantiate)(&raw mut executable, recording, FLAGS) };
        self.exchange(mode)?;
        check("cuGraphInstantiateWithFlags", status)?;
        Ok(Graph::from_raw(handle(executable)))
    }
}

impl Capture for CudaCapture {
    unsafe fn capture_status(&self, stream: StreamRef) -> Result<CaptureStatus> {
        let _entered = self.context.enter()?;
        let (mut state, mut id) = (IDLE, 0);
        // SAFETY: 1. is the caller's promise; the driver writes two numbers, and no more where the other
        // places are null.
        let status = unsafe {
            (self.calls.status)(
                pointer(stream.raw()),
                &raw mut state,
                &raw mut id,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        told(status, state, id)
    }

    unsafe fn frontier(&self, stream: StreamRef, nodes: &mut Vec<CaptureNode>) -> Result<CaptureStatus> {
        let _entered = self.context.enter()?;
        let (mut state, mut id) = (IDLE, 0);
        let (mut found, mut count) = (ptr::null(), 0);
        // SAFETY: 1. is the caller's promise; the driver writes two numbers, a list and its length.
        let status = unsafe {
            (self.calls.status)(
                pointer(stream.raw()),
                &raw mut state,
                &raw mut id,
                ptr::null_mut(),
                &raw mut found,
                &raw mut count,
            )
        };
        let status = told(status, state, id)?;
        if matches!(status, CaptureStatus::Active(_)) && count > 0 {
            // SAFETY: the driver's list is that long, and stays as it is until the next call for the stream.
            let found = unsafe { slice::from_raw_parts(found, count) };
            nodes.extend(found.iter().map(|node| CaptureNode::from_raw(handle(*node))));
        }
        Ok(status)
    }

    unsafe fn dependencies(&self, node: CaptureNode, nodes: &mut Vec<CaptureNode>) -> Result<()> {
        let call = "cuGraphNodeGetDependencies";
        let function = self.calls.node_dependencies();
        let function = function.map_err(|_| Error::new(ErrorKind::Unsupported, call))?;
        let _entered = self.context.enter()?;
        let (node, mut count): (CUgraphNode, _) = (pointer(node.raw()), 0);
        // SAFETY: 1. is the caller's promise; the driver writes how many there are.
        let status = unsafe { function(node, ptr::null_mut(), &raw mut count) };
        check(call, status)?;
        if count == 0 {
            return Ok(());
        }
        let mut found = vec![ptr::null_mut(); count];
        // SAFETY: 1. is the caller's promise; there is room for as many as are said to be.
        let status = unsafe { function(node, found.as_mut_ptr(), &raw mut count) };
        check(call, status)?;
        let found = found.into_iter().take(count);
        nodes.extend(found.map(|node| CaptureNode::from_raw(handle(node))));
        Ok(())
    }

    unsafe fn begin_capture(&self, stream: StreamRef, mode: CaptureMode) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: 1. is the caller's promise.
        let status = unsafe { (self.calls.begin)(pointer(stream.raw()), number(mode)) };
        check("cuStreamBeginCapture_v2", status)
    }

    unsafe fn end_capture(&self, stream: StreamRef) -> Result<Graph> {
        let call = "cuStreamEndCapture";
        let _entered = self.context.enter()?;
        let mut recording = ptr::null_mut();
        // SAFETY: 1. is the caller's promise; the driver writes one handle.
        let status = unsafe { (self.calls.end)(pointer(stream.raw()), &raw mut recording) };
        check(call, status)?;
        if recording.is_null() {
            return Err(Error::new(ErrorKind::CaptureBroken, call));
        }
        let graph = self.instantiate(recording);
        // SAFETY: the recording was given out just now, and what was made from it does not need it.
        let status = unsafe { (self.calls.destroy_recording)(recording) };
        let graph = graph?;
        check("cuGraphDestroy", status)?;
        Ok(graph)
    }

    unsafe fn launch(&self, graph: &Graph, stream: StreamRef) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: 1., 3. and 4. are the caller's promises.
        let status = unsafe { (self.calls.launch)(pointer(graph.raw()), pointer(stream.raw())) };
        check("cuGraphLaunch", status)
    }

    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: 1. is the caller's promise.
        let status = unsafe { (self.calls.destroy)(pointer(graph.raw())) };
        check("cuGraphExecDestroy", status)
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        let _entered = self.context.enter()?;
        Ok(match self.exchange(number(mode))? {
            GLOBAL => CaptureMode::Global,
            THREAD_LOCAL => CaptureMode::ThreadLocal,
            _ => CaptureMode::Relaxed,
        })
    }
}

/// What the driver answered when asked for a stream's state and the number of its capture.
fn told(status: Status, state: u32, id: u64) -> Result<CaptureStatus> {
    if status == CAPTURE_IMPLICIT {
        // The default stream itself is never captured.
        return Ok(CaptureStatus::Idle);
    }
    check("cuStreamGetCaptureInfo_v2", status)?;
    Ok(match (state, NonZeroU64::new(id)) {
        (IDLE, _) => CaptureStatus::Idle,
        (ACTIVE, Some(id)) => CaptureStatus::Active(CaptureId(id)),
        _ => CaptureStatus::Broken,
    })
}

/// A mode as the driver numbers it.
const fn number(mode: CaptureMode) -> u32 {
    match mode {
        CaptureMode::Global => GLOBAL,
        CaptureMode::ThreadLocal => THREAD_LOCAL,
        CaptureMode::Relaxed => RELAXED,
    }
}
