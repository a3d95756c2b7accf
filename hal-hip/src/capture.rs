//! Streams captured into graphs.

use std::ffi::c_int;
use std::num::NonZeroU64;
use std::ptr;
use std::slice;

use cachette_hal::{
    Capture, CaptureId, CaptureMode, CaptureNode, CaptureStatus, Error, ErrorKind, Graph, Result, StreamRef,
};

use crate::context::{CAPTURES, Context, Group, PER_THREAD_STREAM, handle};
use crate::symbols::CaptureCalls;
use crate::types::{
    CAPTURE_MODE_GLOBAL as GLOBAL, CAPTURE_MODE_RELAXED as RELAXED, CAPTURE_MODE_THREAD_LOCAL as THREAD_LOCAL,
    CAPTURE_STATUS_ACTIVE as ACTIVE, CAPTURE_STATUS_NONE as IDLE, GraphHandle, StreamHandle,
};

pub(crate) type HipCapture = Group<CaptureCalls>;

impl HipCapture {
    /// Sets the thread's capture mode, and returns the previous one.
    fn exchange(&self, mut mode: c_int) -> Result<c_int> {
        let exchange = self.calls.hipThreadExchangeStreamCaptureMode;
        // SAFETY: the driver reads and writes one number.
        self.context.call("hipThreadExchangeStreamCaptureMode", || unsafe { exchange(&raw mut mode) })?;
        Ok(mode)
    }

    /// Runs `act` in relaxed mode, in which the thread cannot break captures of other streams.
    fn relaxed<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let mode = self.exchange(RELAXED)?;
        let result = act();
        // The driver accepted this mode before.
        let _ = self.exchange(mode);
        result
    }

    /// Makes a recording ready to launch.
    ///
    /// The thread is in relaxed mode during the call: the driver may allocate, which would break another capture.
    fn instantiate(&self, recording: GraphHandle) -> Result<Graph> {
        let mut executable = 0;
        let instantiate = self.calls.hipGraphInstantiateWithFlags;
        self.relaxed(|| {
            let call = "hipGraphInstantiateWithFlags";
            // SAFETY: the recording lives, and the driver writes one handle.
            self.context.call(call, || unsafe { instantiate(&raw mut executable, recording, 0) })
        })?;
        Ok(Graph::from_raw(executable))
    }

    /// Begins a capture.
    ///
    /// # Safety
    ///
    /// Promise 1.
    unsafe fn begin(&self, stream: StreamRef, mode: CaptureMode) -> Result<()> {
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context.enter_for(stream) }?;
        let begin = self.calls.hipStreamBeginCapture;
        // SAFETY: 1. is the caller's promise.
        self.context.check("hipStreamBeginCapture", unsafe { begin(handle(stream), number(mode)) })
    }

    /// Ends a capture. Detaches a capture that produces no graph from its streams.
    ///
    /// # Safety
    ///
    /// Promise 1.
    unsafe fn end_once(&self, stream: StreamHandle) -> Result<GraphHandle> {
        let (call, left) = ("hipStreamEndCapture", &self.context.driver.left);
        let _held = CAPTURES.lock();
        // SAFETY: 1. is the caller's promise.
        unsafe { check_live(&self.context, StreamRef::from_raw(stream)) }?;
        if left.lock().contains(&stream) {
            // SAFETY: 1. is the caller's promise.
            unsafe { self.detach(stream) }?;
            left.lock().remove(&stream);
            return Err(Error::new(ErrorKind::InvalidValue, call));
        }
        let mut recording = 0;
        // SAFETY: 1. is the caller's promise; the driver writes one handle, and no capture is ended twice.
        let ended = self.context.call(call, || unsafe { (self.calls.hipStreamEndCapture)(stream, &raw mut recording) });
        let is_broken = ended.is_err_and(|error| error.kind() == ErrorKind::CaptureBroken);
        // If this fails, the next begin or end of a capture of the stream tries it again.
        // SAFETY: 1. is the caller's promise.
        if is_broken && unsafe { self.detach(stream) }.is_err() {
            left.lock().insert(stream);
        }
        // Any other failure leaves the capture open, or there was none.
        if ended.is_ok() || is_broken {
            CAPTURES.finish();
        }
        ended?;
        if recording == 0 {
            return Err(Error::new(ErrorKind::CaptureBroken, call));
        }
        Ok(recording)
    }

    /// Detaches a capture that ended without a graph from its streams.
    ///
    /// The driver leaves it on them. It allows a second capture of a broken stream, and the end of that capture frees
    /// every stream of the first.
    ///
    /// # Safety
    ///
    /// Promise 1.
    unsafe fn detach(&self, stream: StreamHandle) -> Result<()> {
        self.relaxed(|| {
            // SAFETY: 1. is the caller's promise.
            match unsafe { self.capture_status(StreamRef::from_raw(stream)) }? {
                CaptureStatus::Idle => return Ok(()),
                CaptureStatus::Active(_) => {
                    // A stream was not joined back, so the capture is still active. A wait is forbidden, and breaks it.
                    let wait = self.context.core().hipStreamSynchronize;
                    // SAFETY: 1. is the caller's promise.
                    let _ = self.context.call("hipStreamSynchronize", || unsafe { wait(stream) });
                }
                _ => {}
            }
            let (begin, end, destroy) =
                (self.calls.hipStreamBeginCapture, self.calls.hipStreamEndCapture, self.calls.hipGraphDestroy);
            // SAFETY: 1. is the caller's promise.
            self.context.call("hipStreamBeginCapture", || unsafe { begin(stream, RELAXED) })?;
            let mut recording = 0;
            // SAFETY: 1. is the caller's promise; the driver writes one handle.
            self.context.call("hipStreamEndCapture", || unsafe { end(stream, &raw mut recording) })?;
            // SAFETY: the recording was returned just now.
            self.context.call("hipGraphDestroy", || unsafe { destroy(recording) })
        })
    }
}

impl Capture for HipCapture {
    unsafe fn capture_status(&self, stream: StreamRef) -> Result<CaptureStatus> {
        let _entered = self.context.enter()?;
        // SAFETY: 1. is the caller's promise.
        unsafe { status_of(&self.context, &self.calls, stream) }
    }

    unsafe fn frontier(&self, stream: StreamRef, nodes: &mut Vec<CaptureNode>) -> Result<CaptureStatus> {
        let call = "hipStreamGetCaptureInfo_v2";
        let stream = handle(stream);
        if stream == StreamRef::DEFAULT.raw() {
            return Ok(CaptureStatus::Idle);
        }
        let (mut state, mut id, graph) = (IDLE, 0, ptr::null_mut());
        let (mut found, mut count) = (ptr::null(), 0);
        let ask = self.calls.hipStreamGetCaptureInfo_v2;
        // SAFETY: 1. is the caller's promise; the driver writes two numbers, a list and its length.
        self.context.call(call, || unsafe {
            ask(stream, &raw mut state, &raw mut id, graph, &raw mut found, &raw mut count)
        })?;
        let status = read_status(call, state, id)?;
        if matches!(status, CaptureStatus::Active(_)) && count > 0 {
            // SAFETY: the driver's list has `count` nodes, and does not change until the next call for the stream.
            let found = unsafe { slice::from_raw_parts(found, count) };
            nodes.extend(found.iter().copied().map(CaptureNode::from_raw));
        }
        Ok(status)
    }

    unsafe fn dependencies(&self, node: CaptureNode, nodes: &mut Vec<CaptureNode>) -> Result<()> {
        let call = "hipGraphNodeGetDependencies";
        let function = self.calls.hipGraphNodeGetDependencies();
        let function = function.map_err(|_| Error::new(ErrorKind::Unsupported, call))?;
        let (node, mut count) = (node.raw(), 0);
        // SAFETY: 1. is the caller's promise; the driver writes how many there are.
        self.context.call(call, || unsafe { function(node, ptr::null_mut(), &raw mut count) })?;
        if count == 0 {
            return Ok(());
        }
        let mut found = vec![0; count];
        // SAFETY: 1. is the caller's promise; the list has room for `count` nodes.
        self.context.call(call, || unsafe { function(node, found.as_mut_ptr(), &raw mut count) })?;
        let found = found.into_iter().take(count);
        nodes.extend(found.map(CaptureNode::from_raw));
        Ok(())
    }

    unsafe fn begin_capture(&self, stream: StreamRef, mode: CaptureMode) -> Result<()> {
        if self.context.driver.left.lock().contains(&handle(stream)) {
            // The capture was ended before, so this only tries again to detach it, and returns an error.
            // SAFETY: 1. is the caller's promise.
            let _ = unsafe { self.end_once(handle(stream)) };
        }
        CAPTURES.begin();
        // SAFETY: 1. is the caller's promise.
        let begun = unsafe { self.begin(stream, mode) };
        begun.inspect_err(|_| CAPTURES.finish())
    }

    unsafe fn end_capture(&self, stream: StreamRef) -> Result<Graph> {
        // SAFETY: 1. is the caller's promise.
        let recording = unsafe { self.end_once(handle(stream)) }?;
        let graph = self.instantiate(recording);
        // SAFETY: the recording was returned just now, and the executable graph does not need it.
        let destroyed = self.context.call("hipGraphDestroy", || unsafe { (self.calls.hipGraphDestroy)(recording) });
        let graph = graph?;
        if let Err(error) = destroyed {
            // SAFETY: 1. it was created above, and is not used elsewhere.
            unsafe { self.destroy_graph(graph) }?;
            return Err(error);
        }
        Ok(graph)
    }

    unsafe fn launch(&self, graph: &Graph, stream: StreamRef) -> Result<()> {
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context.enter_for(stream) }?;
        // SAFETY: 1., 3. and 4. are the caller's promises.
        self.context.check("hipGraphLaunch", unsafe { (self.calls.hipGraphLaunch)(graph.raw(), handle(stream)) })
    }

    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()> {
        // SAFETY: 1. is the caller's promise.
        self.context.call("hipGraphExecDestroy", || unsafe { (self.calls.hipGraphExecDestroy)(graph.raw()) })
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        match self.exchange(number(mode))? {
            GLOBAL => Ok(CaptureMode::Global),
            THREAD_LOCAL => Ok(CaptureMode::ThreadLocal),
            RELAXED => Ok(CaptureMode::Relaxed),
            _ => Err(Error::new(ErrorKind::Other, "hipThreadExchangeStreamCaptureMode")),
        }
    }
}

/// Returns whether a stream is not captured, as the default stream never is. It may be if the query fails.
///
/// # Safety
///
/// Promise 1.
pub(crate) unsafe fn is_idle(context: &Context, stream: StreamRef) -> bool {
    let Ok(calls) = context.symbols().capture else { return true };
    // SAFETY: 1. is the caller's promise.
    let status = unsafe { status_of(context, &calls, stream) };
    status == Ok(CaptureStatus::Idle)
}

/// Returns whether a stream is captured; `false` if the driver does not tell, or has destroyed it.
///
/// # Safety
///
/// Promise 1, or the stream was destroyed.
pub(crate) unsafe fn is_captured(context: &Context, stream: StreamRef) -> bool {
    let Ok(calls) = context.symbols().capture else { return false };
    // SAFETY: 1. is the caller's promise, and every version refuses a stream that was destroyed.
    let status = unsafe { status_of(context, &calls, stream) };
    status.is_ok_and(|status| status != CaptureStatus::Idle)
}

/// Fails if a stream was destroyed, by a query that every version answers then.
///
/// A stream of this crate is live, so the driver is not asked.
///
/// # Safety
///
/// Promise 1.
pub(crate) unsafe fn check_live(context: &Context, stream: StreamRef) -> Result<()> {
    let Ok(calls) = context.symbols().capture else { return Ok(()) };
    if handle(stream) <= PER_THREAD_STREAM || context.driver.own.lock().contains(&handle(stream)) {
        return Ok(());
    }
    // SAFETY: 1. is the caller's promise.
    match unsafe { status_of(context, &calls, stream) } {
        Err(error) if error.kind() == ErrorKind::InvalidHandle => Err(error),
        // A stream whose state cannot be told is live.
        _ => Ok(()),
    }
}

/// The state of a stream's capture. The device is current, or the stream is one that was created.
///
/// # Safety
///
/// Promise 1.
unsafe fn status_of(context: &Context, calls: &CaptureCalls, stream: StreamRef) -> Result<CaptureStatus> {
    let call = "hipStreamGetCaptureInfo_v2";
    let stream = handle(stream);
    // It is never captured, and a query fails while a stream that waits for it is captured.
    if stream == StreamRef::DEFAULT.raw() {
        return Ok(CaptureStatus::Idle);
    }
    let (mut state, mut id) = (IDLE, 0);
    let (graph, nodes, count) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: 1. is the caller's promise; the driver writes two numbers, and skips the null places.
    let status =
        unsafe { (calls.hipStreamGetCaptureInfo_v2)(stream, &raw mut state, &raw mut id, graph, nodes, count) };
    context.check(call, status)?;
    read_status(call, state, id)
}

/// Converts the driver's result to the capture status of a stream.
fn read_status(call: &'static str, state: c_int, id: u64) -> Result<CaptureStatus> {
    match (state, NonZeroU64::new(id)) {
        (IDLE, _) => Ok(CaptureStatus::Idle),
        (ACTIVE, Some(id)) => Ok(CaptureStatus::Active(CaptureId(id))),
        (ACTIVE, None) => Err(Error::new(ErrorKind::Other, call)),
        _ => Ok(CaptureStatus::Broken),
    }
}

/// The driver's number of a mode.
const fn number(mode: CaptureMode) -> c_int {
    match mode {
        CaptureMode::Global => GLOBAL,
        CaptureMode::ThreadLocal => THREAD_LOCAL,
        CaptureMode::Relaxed => RELAXED,
    }
}
