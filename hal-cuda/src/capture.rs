//! Streams captured into graphs.

use std::num::NonZeroU64;
use std::ptr;
use std::slice;

use cachette_hal::{
    Capture, CaptureId, CaptureMode, CaptureNode, CaptureStatus, Error, ErrorKind, Graph, Result, StreamRef,
};
use cudarc::driver::sys::{
    CUgraph, CUgraphInstantiate_flags as Instantiate, CUgraphNode, CUstreamCaptureMode as Mode,
    CUstreamCaptureStatus as Captured,
};

use crate::context::{CAPTURES, Context, Group};
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

pub(crate) type CudaCapture = Group<CaptureCalls>;

impl CudaCapture {
    /// Sets the thread's capture mode, and returns the previous one.
    fn exchange(&self, mut mode: u32) -> Result<u32> {
        // SAFETY: the driver reads and writes one number.
        let status = unsafe { (self.calls.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
        check("cuThreadExchangeStreamCaptureMode", status)?;
        Ok(mode)
    }

    /// Makes a recording ready to launch.
    ///
    /// The thread is in relaxed mode during the call: the driver may allocate, which would break another capture.
    fn instantiate(&self, recording: CUgraph) -> Result<Graph> {
        let mode = self.exchange(RELAXED)?;
        let mut executable = ptr::null_mut();
        // SAFETY: the recording lives, and the driver writes one handle.
        let status = unsafe { (self.calls.cuGraphInstantiateWithFlags)(&raw mut executable, recording, FLAGS) };
        self.exchange(mode)?;
        check("cuGraphInstantiateWithFlags", status)?;
        Ok(Graph::from_raw(handle(executable)))
    }
}

impl Capture for CudaCapture {
    unsafe fn capture_status(&self, stream: StreamRef) -> Result<CaptureStatus> {
        let _entered = self.context.enter()?;
        // SAFETY: 1. is the caller's promise.
        let (status, state, id) = unsafe { ask(&self.calls, stream, ptr::null_mut(), ptr::null_mut()) };
        read_status(status, state, id)
    }

    unsafe fn frontier(&self, stream: StreamRef, nodes: &mut Vec<CaptureNode>) -> Result<CaptureStatus> {
        let _entered = self.context.enter()?;
        let (mut found, mut count) = (ptr::null(), 0);
        // SAFETY: 1. is the caller's promise.
        let (status, state, id) = unsafe { ask(&self.calls, stream, &raw mut found, &raw mut count) };
        let status = read_status(status, state, id)?;
        if matches!(status, CaptureStatus::Active(_)) && count > 0 {
            // SAFETY: the driver's list has `count` nodes, and does not change until the next call for the stream.
            let found = unsafe { slice::from_raw_parts(found, count) };
            nodes.extend(found.iter().map(|node| CaptureNode::from_raw(handle(*node))));
        }
        Ok(status)
    }

    unsafe fn dependencies(&self, node: CaptureNode, nodes: &mut Vec<CaptureNode>) -> Result<()> {
        let call = "cuGraphNodeGetDependencies";
        let function = self.calls.cuGraphNodeGetDependencies().map_err(|_| Error::new(ErrorKind::Unsupported, call))?;
        let (node, mut count): (CUgraphNode, _) = (pointer(node.raw()), 0);
        // SAFETY: 1. is the caller's promise; the driver writes how many there are.
        self.context.call(call, || unsafe { function(node, ptr::null_mut(), &raw mut count) })?;
        if count == 0 {
            return Ok(());
        }
        let mut found = vec![ptr::null_mut(); count];
        // SAFETY: 1. is the caller's promise; the list has room for `count` nodes.
        self.context.call(call, || unsafe { function(node, found.as_mut_ptr(), &raw mut count) })?;
        let found = found.into_iter().take(count);
        nodes.extend(found.map(|node| CaptureNode::from_raw(handle(node))));
        Ok(())
    }

    unsafe fn begin_capture(&self, stream: StreamRef, mode: CaptureMode) -> Result<()> {
        CAPTURES.begin();
        // SAFETY: 1. is the caller's promise.
        let begun = self.context.call("cuStreamBeginCapture_v2", || unsafe {
            (self.calls.cuStreamBeginCapture_v2)(pointer(stream.raw()), number(mode))
        });
        begun.inspect_err(|_| CAPTURES.finish())
    }

    unsafe fn end_capture(&self, stream: StreamRef) -> Result<Graph> {
        let call = "cuStreamEndCapture";
        let _entered = self.context.enter()?;
        let mut recording = ptr::null_mut();
        let (status, has_ended) = {
            let _held = CAPTURES.lock();
            // SAFETY: 1. is the caller's promise.
            let was_idle = unsafe { is_idle(&self.context, stream) };
            // SAFETY: 1. is the caller's promise; the driver writes one handle.
            let status = unsafe { (self.calls.cuStreamEndCapture)(pointer(stream.raw()), &raw mut recording) };
            // Some failures end the capture, such as that of a thread that did not begin it. Others leave it open.
            // SAFETY: 1. is the caller's promise.
            (status, !was_idle && unsafe { is_idle(&self.context, stream) })
        };
        if has_ended {
            CAPTURES.finish();
        }
        check(call, status)?;
        if recording.is_null() {
            return Err(Error::new(ErrorKind::CaptureBroken, call));
        }
        let graph = self.instantiate(recording);
        // SAFETY: the recording was returned just now, and the executable graph does not need it.
        let status = unsafe { (self.calls.cuGraphDestroy)(recording) };
        let graph = graph?;
        if let Err(error) = check("cuGraphDestroy", status) {
            // SAFETY: 1. the graph was instantiated just now, and no other code has its handle.
            let _ = unsafe { self.destroy_graph(graph) };
            return Err(error);
        }
        Ok(graph)
    }

    unsafe fn launch(&self, graph: &Graph, stream: StreamRef) -> Result<()> {
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context.enter_for(stream) }?;
        // SAFETY: 1., 3. and 4. are the caller's promises.
        check("cuGraphLaunch", unsafe { (self.calls.cuGraphLaunch)(pointer(graph.raw()), pointer(stream.raw())) })
    }

    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()> {
        // SAFETY: 1. is the caller's promise.
        self.context.call("cuGraphExecDestroy", || unsafe { (self.calls.cuGraphExecDestroy)(pointer(graph.raw())) })
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

/// Returns whether a stream is not captured. It may be if the query fails, as for the default stream during a capture.
///
/// # Safety
///
/// Promise 1. The context is current.
pub(crate) unsafe fn is_idle(context: &Context, stream: StreamRef) -> bool {
    let Ok(calls) = context.symbols().capture else { return true };
    // SAFETY: 1. is the caller's promise.
    let (status, state, _) = unsafe { ask(&calls, stream, ptr::null_mut(), ptr::null_mut()) };
    status == 0 && state == IDLE
}

/// Asks for a stream's capture, and for the nodes of its frontier unless their places are null.
///
/// Returns the status of the call, the state of the capture, and its id.
///
/// # Safety
///
/// Promise 1. The context is current.
unsafe fn ask(
    calls: &CaptureCalls,
    stream: StreamRef,
    nodes: *mut *const CUgraphNode,
    count: *mut usize,
) -> (Status, u32, u64) {
    let (mut state, mut id, graph) = (IDLE, 0, ptr::null_mut());
    let ask = calls.cuStreamGetCaptureInfo_v2;
    // SAFETY: 1. is the caller's promise; the driver writes two numbers, a list and its length, and skips null places.
    let status = unsafe { ask(pointer(stream.raw()), &raw mut state, &raw mut id, graph, nodes, count) };
    (status, state, id)
}

/// Converts the driver's result to the capture status of a stream.
fn read_status(status: Status, state: u32, id: u64) -> Result<CaptureStatus> {
    if status == CAPTURE_IMPLICIT {
        // The default stream is never captured.
        return Ok(CaptureStatus::Idle);
    }
    check("cuStreamGetCaptureInfo_v2", status)?;
    Ok(match (state, NonZeroU64::new(id)) {
        (IDLE, _) => CaptureStatus::Idle,
        (ACTIVE, Some(id)) => CaptureStatus::Active(CaptureId(id)),
        _ => CaptureStatus::Broken,
    })
}

/// The driver's number of a mode.
const fn number(mode: CaptureMode) -> u32 {
    match mode {
        CaptureMode::Global => GLOBAL,
        CaptureMode::ThreadLocal => THREAD_LOCAL,
        CaptureMode::Relaxed => RELAXED,
    }
}
