//! Streams captured into graphs.

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::ptr;
use std::thread;
use std::time::Duration;

use cachette_emulated::{Destructor, Recording, UserObject, mode_of, numbers_of, tell_nodes};
use cachette_hal::{Capture, CaptureNode, CaptureStatus, Device};

use crate::device::unit_of_stream;
use crate::prelude::*;

const INSTANTIATION_FLAGS: c_ulonglong = 15;

fn capture(unit: &Unit) -> Answer<&dyn Capture> {
    unit.device.capture().map_err(lacking)
}

/// Whether a stream is in a capture, broken or not.
pub(crate) fn is_captured(unit: &Unit, stream: *mut c_void) -> Answer<bool> {
    // SAFETY: 1. is the caller's promise.
    let status = unsafe { capture(unit)?.capture_status(named_stream(stream)) }.map_err(told)?;
    Ok(status != CaptureStatus::Idle)
}

abi! {
    fn cuStreamIsCapturing(stream: *mut c_void, status: *mut c_uint) => status {
        // SAFETY: 1. is the caller's promise.
        let found = unsafe { capture(current()?)?.capture_status(named_stream(stream)) }.map_err(told)?;
        Ok(numbers_of(found).0)
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
        let (capture, of, mut nodes) = (capture(current()?)?, named_stream(stream), Vec::new());
        let found = if wanted {
            // SAFETY: 1. is the caller's promise.
            unsafe { capture.frontier(of, &mut nodes) }
        } else {
            // SAFETY: 1. is the caller's promise.
            unsafe { capture.capture_status(of) }
        };
        let (state, number) = numbers_of(found.map_err(told)?);
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(id, number) };
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(graph, ptr::null_mut()) };
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(count, nodes.len()) };
        if wanted {
            let kept = driver()?.ledger.recordings.lock().keep_frontier(stream.addr(), &nodes);
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
        // SAFETY: the count is not null, and otherwise the caller's promise.
        Ok(unsafe { tell_nodes(&nodes, dependencies, count) })
    }

    fn cuStreamBeginCapture_v2(stream: *mut c_void, number: c_uint) {
        let (capture, mode) = (capture(unit_of_stream(stream)?)?, mode_of(number)?);
        let stream = stream_ref(stream);
        // SAFETY: 1. is the caller's promise.
        unsafe { capture.begin_capture(stream, mode) }.map_err(told)?;
        // SAFETY: 1. is the caller's promise.
        let status = unsafe { capture.capture_status(stream) }.map_err(told)?;
        driver()?.ledger.recordings.lock().begin(stream.raw(), numbers_of::<c_uint>(status).1);
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
        let memory = driver.ledger.recordings.lock().end(stream.raw());
        let (recording, handle) = (Recording::new(&unit.device, ended?, memory), driver.ledger.next_handle());
        driver.ledger.recordings.lock().graphs.insert(handle, recording);
        Ok(ptr::without_provenance_mut(handle))
    }

    fn cuGraphInstantiateWithFlags(executable: *mut *mut c_void, graph: *mut c_void, flags: c_ulonglong) => executable {
        let ledger = &driver()?.ledger;
        let recording = ledger.recordings.lock().graph(graph.addr())?;
        refuse_if(executable.is_null() || flags > INSTANTIATION_FLAGS, INVALID_VALUE)?;
        let handle = ledger.next_handle();
        ledger.recordings.lock().executables.insert(handle, recording);
        Ok(ptr::without_provenance_mut(handle))
    }

    /// Copies a recording. The copy shares its memory and objects.
    fn cuGraphClone(copy: *mut *mut c_void, graph: *mut c_void) => copy {
        let ledger = &driver()?.ledger;
        let recording = ledger.recordings.lock().graph(graph.addr())?;
        refuse_if(copy.is_null(), INVALID_VALUE)?;
        let handle = ledger.next_handle();
        ledger.recordings.lock().graphs.insert(handle, recording);
        Ok(ptr::without_provenance_mut(handle))
    }

    /// Destroys a recording; what was made from it stays.
    fn cuGraphDestroy(graph: *mut c_void) {
        // Destroyed after the lock is given back.
        let destroyed = driver()?.ledger.recordings.lock().graphs.remove(&graph.addr());
        destroyed.map(drop).ok_or(INVALID_VALUE)
    }

    fn cuGraphLaunch(executable: *mut c_void, stream: *mut c_void) {
        let ledger = &driver()?.ledger;
        let known = ledger.recordings.lock().executables.get(&executable.addr()).cloned();
        let (recording, capture, launching) = (known.ok_or(INVALID_VALUE)?, capture(current()?)?, &ledger.launching);
        recording.allocate()?;
        if !launching.lock().insert(executable.addr()) {
            crash("another thread launches the same graph");
        }
        // Long enough for a launch by another thread to come in between.
        thread::sleep(Duration::from_micros(50));
        // SAFETY: 1. the ledger knows the graph. 3. and 4. are the caller's promises.
        let launched = unsafe { capture.launch(recording.graph()?, stream_ref(stream)) }.map_err(told);
        launching.lock().remove(&executable.addr());
        launched
    }

    fn cuGraphExecDestroy(executable: *mut c_void) {
        // Destroyed after the lock is given back.
        let destroyed = driver()?.ledger.recordings.lock().executables.remove(&executable.addr());
        destroyed.map(drop).ok_or(INVALID_VALUE)
    }

    fn cuThreadExchangeStreamCaptureMode(number: *mut c_uint) => number {
        refuse_if(number.is_null(), INVALID_VALUE)?;
        // A thread's mode is not a matter of one device; any will do.
        let unit = driver()?.units.first().ok_or(NO_DEVICE)?;
        // SAFETY: it is not null, and otherwise the caller's promise.
        let wanted = mode_of(unsafe { number.read() })?;
        Ok(capture(unit)?.exchange_capture_mode(wanted).map_err(told)? as c_uint)
    }

    fn cuUserObjectCreate(
        object: *mut *mut c_void,
        data: *mut c_void,
        destroy: Option<Destructor>,
        count: c_uint,
        flags: c_uint,
    ) => object {
        refuse_if(object.is_null(), INVALID_VALUE)?;
        // SAFETY: the caller's promise.
        let made = unsafe { UserObject::new(data, destroy, count, flags) }?;
        let ledger = &driver()?.ledger;
        let handle = ledger.next_handle();
        ledger.recordings.lock().objects.insert(handle, made);
        Ok(ptr::without_provenance_mut(handle))
    }

    fn cuGraphRetainUserObject(graph: *mut c_void, object: *mut c_void, count: c_uint, flags: c_uint) {
        driver()?.ledger.recordings.lock().retain(graph.addr(), object.addr(), count, flags)
    }
}
