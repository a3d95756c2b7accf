//! Streams captured into graphs.

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::ptr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cachette_hal::{Capture, CaptureMode, CaptureNode, CaptureStatus, Device, StreamRef};

use crate::device::unit_of_stream;
use crate::graph_memory;
use crate::ledger::Recording;
use crate::prelude::*;

const INSTANTIATION_FLAGS: c_ulonglong = 15;

fn capture(unit: &Unit) -> Answer<&dyn Capture> {
    unit.device.capture().map_err(absent)
}

/// The state of a stream's capture and its number, as the driver numbers them.
///
/// # Safety
///
/// Promise 1.
unsafe fn state(stream: StreamRef) -> Answer<(c_uint, u64)> {
    let capture = capture(current()?)?;
    // SAFETY: 1. is the caller's promise.
    let status = unsafe { capture.capture_status(stream) }.map_err(told)?;
    Ok(numbers(status))
}

/// The same, with the handles of the stream's frontier.
///
/// # Safety
///
/// Promise 1.
unsafe fn state_and_frontier(stream: StreamRef) -> Answer<((c_uint, u64), Vec<usize>)> {
    let capture = capture(current()?)?;
    let mut nodes = Vec::new();
    // SAFETY: 1. is the caller's promise.
    let status = unsafe { capture.frontier(stream, &mut nodes) }.map_err(told)?;
    let nodes = nodes.into_iter().map(CaptureNode::raw).collect();
    Ok((numbers(status), nodes))
}

fn numbers(status: CaptureStatus) -> (c_uint, u64) {
    match status {
        CaptureStatus::Idle => (0, 0),
        CaptureStatus::Active(id) => (1, id.0.get()),
        _ => (2, 0),
    }
}

/// Whether a stream is in a capture, broken or not.
pub(crate) fn is_captured(unit: &Unit, stream: *mut c_void) -> Answer<bool> {
    // SAFETY: 1. is the caller's promise.
    let status = unsafe { capture(unit)?.capture_status(named_stream(stream)) }.map_err(told)?;
    Ok(status != CaptureStatus::Idle)
}

fn mode(number: c_uint) -> Answer<CaptureMode> {
    match number {
        0 => Ok(CaptureMode::Global),
        1 => Ok(CaptureMode::ThreadLocal),
        2 => Ok(CaptureMode::Relaxed),
        _ => Err(INVALID_VALUE),
    }
}

/// What is behind the handle of a graph.
pub(crate) fn recording<T>(handle: *mut T) -> Answer<Arc<Recording>> {
    let graphs = driver()?.ledger.graphs.lock();
    graphs.get(&handle.addr()).cloned().ok_or(INVALID_VALUE)
}

fn forget<T>(handle: *mut T) -> Answer {
    // Destroyed after the lock is given back.
    let forgotten = driver()?.ledger.graphs.lock().remove(&handle.addr());
    forgotten.map(drop).ok_or(INVALID_VALUE)
}

abi! {
    fn cuStreamIsCapturing(stream: *mut c_void, status: *mut c_uint) => status {
        // SAFETY: 1. is the caller's promise.
        let (state, _) = unsafe { state(named_stream(stream)) }?;
        Ok(state)
    }

    /// Whether a stream is captured, by which capture, and what its next work depends on.
    ///
    /// What is being recorded has no handle before its end, so none is given.
    fn cuStreamGetCaptureInfo_v2(
        stream: *mut c_void,
        status: *mut c_uint,
        id: *mut u64,
        graph: *mut *mut c_void,
        dependencies: *mut *const usize,
        count: *mut usize,
    ) => status {
        let wanted = !dependencies.is_null() || !count.is_null();
        let ((state, number), nodes) = if wanted {
            // SAFETY: 1. is the caller's promise.
            unsafe { state_and_frontier(named_stream(stream)) }?
        } else {
            // SAFETY: 1. is the caller's promise.
            (unsafe { state(named_stream(stream)) }?, Vec::new())
        };
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(id, number) };
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(graph, ptr::null_mut()) };
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(count, nodes.len()) };
        if wanted {
            let kept = driver()?.ledger.keep_frontier(stream.addr(), nodes);
            // SAFETY: the caller's promise.
            unsafe { put_if_wanted(dependencies, kept) };
        }
        Ok(state)
    }

    /// Tells what a node depends on: how many, or as many of them as there is room for.
    fn cuGraphNodeGetDependencies(node: *mut c_void, dependencies: *mut usize, count: *mut usize) => count {
        refuse_if(count.is_null(), INVALID_VALUE)?;
        let mut nodes = Vec::new();
        let asked = CaptureNode::from_raw(node.addr());
        // SAFETY: 1. is the caller's promise.
        unsafe { capture(current()?)?.dependencies(asked, &mut nodes) }.map_err(told)?;
        if dependencies.is_null() {
            return Ok(nodes.len());
        }
        // SAFETY: it is not null, and otherwise the caller's promise.
        let room = unsafe { count.read() };
        for place in 0..room {
            let node = nodes.get(place).map_or(0, |node| node.raw());
            // SAFETY: the caller says that there is so much room.
            let at = unsafe { dependencies.add(place) };
            // SAFETY: as above.
            unsafe { put(at, node) }?;
        }
        Ok(nodes.len().min(room))
    }

    fn cuStreamBeginCapture_v2(stream: *mut c_void, number: c_uint) {
        let (capture, mode) = (capture(unit_of_stream(stream)?)?, mode(number)?);
        let stream = stream_ref(stream);
        // SAFETY: 1. is the caller's promise.
        unsafe { capture.begin_capture(stream, mode) }.map_err(told)?;
        // SAFETY: 1. is the caller's promise.
        let status = unsafe { capture.capture_status(stream) }.map_err(told)?;
        driver()?.ledger.captures.lock().insert(stream.raw(), numbers(status).1);
        Ok(())
    }

    /// Ends a capture and gives its recording; none where it was broken.
    fn cuStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) => graph {
        let (unit, driver) = (current()?, driver()?);
        // SAFETY: the caller's promise.
        unsafe { put(graph, ptr::null_mut()) }?;
        let stream = stream_ref(stream);
        driver.ledger.ending.lock().insert(stream.raw());
        // Long enough for a call by another thread to come in between.
        thread::sleep(Duration::from_micros(200));
        // SAFETY: 1. is the caller's promise.
        let ended = capture(unit).and_then(|capture| unsafe { capture.end_capture(stream) }.map_err(told));
        driver.ledger.ending.lock().remove(&stream.raw());
        let memory = driver.ledger.end_capture(stream.raw());
        let recording = Arc::new(Recording::new(Arc::clone(&unit.device), ended?, memory));
        let handle = driver.ledger.enter_graph(recording);
        Ok(ptr::without_provenance_mut(handle))
    }

    /// Makes a recording ready to launch.
    fn cuGraphInstantiateWithFlags(executable: *mut *mut c_void, graph: *mut c_void, flags: c_ulonglong) => executable {
        let recording = recording(graph)?;
        refuse_if(executable.is_null() || flags > INSTANTIATION_FLAGS, INVALID_VALUE)?;
        let handle = driver()?.ledger.enter_graph(recording);
        Ok(ptr::without_provenance_mut(handle))
    }

    /// Copies a recording. The copy shares its memory and objects.
    fn cuGraphClone(copy: *mut *mut c_void, graph: *mut c_void) => copy {
        let recording = recording(graph)?;
        refuse_if(copy.is_null(), INVALID_VALUE)?;
        Ok(ptr::without_provenance_mut(driver()?.ledger.enter_graph(recording)))
    }

    /// Destroys a recording; what was made from it stays.
    fn cuGraphDestroy(graph: *mut c_void) {
        forget(graph)
    }

    /// Launches what was made from a recording.
    fn cuGraphLaunch(executable: *mut c_void, stream: *mut c_void) {
        let (recording, unit) = (recording(executable)?, current()?);
        let graph = recording.graph().ok_or(INVALID_HANDLE)?;
        let (capture, launching) = (capture(unit)?, &driver()?.ledger.launching);
        graph_memory::launch(&recording.memory)?;
        if !launching.lock().insert(executable.addr()) {
            crash("another thread launches the same graph");
        }
        // Long enough for a launch by another thread to come in between.
        thread::sleep(Duration::from_micros(50));
        // SAFETY: 1. the ledger knows the graph. 3. and 4. are the caller's promises.
        let launched = unsafe { capture.launch(graph, stream_ref(stream)) }.map_err(told);
        launching.lock().remove(&executable.addr());
        launched
    }

    /// Destroys what was made from a recording.
    fn cuGraphExecDestroy(executable: *mut c_void) {
        forget(executable)
    }

    /// Sets the thread's mode, and returns the previous one.
    fn cuThreadExchangeStreamCaptureMode(number: *mut c_uint) => number {
        refuse_if(number.is_null(), INVALID_VALUE)?;
        // A thread's mode is not a matter of one device; any will do.
        let unit = driver()?.units().first().ok_or(NO_DEVICE)?;
        // SAFETY: it is not null, and otherwise the caller's promise.
        let wanted = mode(unsafe { number.read() })?;
        let before = capture(unit)?.exchange_capture_mode(wanted).map_err(told)?;
        let before = match before {
            CaptureMode::Global => 0,
            CaptureMode::ThreadLocal => 1,
            CaptureMode::Relaxed => 2,
        };
        Ok(before)
    }
}
