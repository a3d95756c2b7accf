//! Streams captured into graphs.

use std::ffi::{c_int, c_ulonglong};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cachette_hal::{CaptureMode, CaptureStatus, Device, ErrorKind, StreamRef};

use crate::prelude::*;
use crate::recording::Recording;

fn mode_of(number: c_int) -> Answer<CaptureMode> {
    match number {
        CAPTURE_MODE_GLOBAL => Ok(CaptureMode::Global),
        CAPTURE_MODE_THREAD_LOCAL => Ok(CaptureMode::ThreadLocal),
        CAPTURE_MODE_RELAXED => Ok(CaptureMode::Relaxed),
        _ => Err(INVALID_VALUE),
    }
}

const fn number_of(mode: CaptureMode) -> c_int {
    match mode {
        CaptureMode::Global => CAPTURE_MODE_GLOBAL,
        CaptureMode::ThreadLocal => CAPTURE_MODE_THREAD_LOCAL,
        CaptureMode::Relaxed => CAPTURE_MODE_RELAXED,
    }
}

/// The state of a stream's capture, and its number; a default stream has none.
pub(crate) fn status_and_id(machine: &Machine, stream: StreamHandle) -> Answer<(c_int, u64)> {
    let (_, device, beneath) = machine.any_stream(stream)?;
    if beneath == StreamRef::DEFAULT {
        return Ok((CAPTURE_STATUS_NONE, 0));
    }
    let capture = device.capture().map_err(lacking)?;
    // SAFETY: 1. the table has it.
    let status = unsafe { capture.capture_status(beneath) }.map_err(status_of)?;
    Ok(machine.state().captures.status(stream, numbers_of(status)))
}

/// A state and the number of its capture, as the interface has them.
const fn numbers_of(status: CaptureStatus) -> (c_int, u64) {
    match status {
        CaptureStatus::Idle => (CAPTURE_STATUS_NONE, 0),
        CaptureStatus::Active(id) => (CAPTURE_STATUS_ACTIVE, id.0.get()),
        _ => (CAPTURE_STATUS_INVALIDATED, 0),
    }
}

abi! {
    fn hipStreamIsCapturing(machine; stream: StreamHandle, status: *mut c_int) => status {
        if machine.misses(stream) {
            return Ok(CAPTURE_STATUS_NONE);
        }
        Ok(status_and_id(machine, stream)?.0)
    }

    fn hipStreamBeginCapture(machine; stream: StreamHandle, mode: c_int) {
        let mode = mode_of(mode)?;
        if machine.misses(stream) {
            return Ok(());
        }
        let status = status_and_id(machine, stream)?.0;
        machine.state().captures.check_begin(stream, status)?;
        refuse_if(machine.captures_stay && status != CAPTURE_STATUS_NONE, ILLEGAL_STATE)?;
        let (_, device, beneath) = machine.any_stream(stream)?;
        refuse_if(beneath == StreamRef::DEFAULT, CAPTURE_UNSUPPORTED)?;
        let capture = device.capture().map_err(lacking)?;
        // SAFETY: 1. the table has it.
        unsafe { capture.begin_capture(beneath, mode) }.map_err(status_of)?;
        // SAFETY: as above.
        let status = unsafe { capture.capture_status(beneath) }.map_err(status_of)?;
        let mut state = machine.state();
        state.captures.begun(stream, numbers_of(status).1);
        state.begun.insert(stream, numbers_of(status).1);
        Ok(())
    }

    fn hipStreamEndCapture(machine; stream: StreamHandle, graph: *mut GraphHandle) => graph {
        let status = status_and_id(machine, stream)?.0;
        machine.state().captures.begin_end(stream, status)?;
        // Long enough for a second end by another thread to come in between.
        thread::sleep(Duration::from_millis(1));
        let (_, device, beneath) = machine.any_stream(stream)?;
        let capture = device.capture().map_err(lacking)?;
        // SAFETY: 1. the table has it.
        let ended = unsafe { capture.end_capture(beneath) };
        let mut state = machine.state();
        let begun = state.begun.remove(&stream);
        let memory = begun.and_then(|id| state.recorded.remove(&id)).unwrap_or_default();
        if matches!(&ended, Err(error) if error.kind() == ErrorKind::CaptureBroken) {
            return Err(state.captures.leave(stream, status));
        }
        state.captures.release(stream);
        let ended = ended.map_err(status_of)?;
        let handle = state.handle();
        state.graphs.insert(handle, Arc::new(Recording::new(Arc::clone(device), ended, memory)));
        Ok(handle)
    }

    fn hipGraphInstantiateWithFlags(
        machine;
        exec: *mut GraphExecHandle,
        graph: GraphHandle,
        flags: c_ulonglong,
    ) => exec {
        refuse_if(flags > 1, INVALID_VALUE)?;
        let mut state = machine.state();
        let recording = state.graphs.get(&graph).cloned().ok_or(INVALID_VALUE)?;
        let handle = state.handle();
        state.execs.insert(handle, recording);
        Ok(handle)
    }

    fn hipGraphDestroy(machine; graph: GraphHandle) {
        // Destroyed after the lock is given back.
        let destroyed = machine.state().graphs.remove(&graph);
        destroyed.map(drop).ok_or(INVALID_VALUE)
    }

    fn hipGraphLaunch(machine; exec: GraphExecHandle, stream: StreamHandle) {
        let known = machine.state().execs.get(&exec).cloned();
        let (_, device, stream) = machine.stream(stream)?;
        let recording = known.ok_or(INVALID_VALUE)?;
        let (capture, graph) = (device.capture().map_err(lacking)?, recording.graph().ok_or(INVALID_VALUE)?);
        recording.allocate()?;
        // SAFETY: 1. the tables have both. 3 and 4. The caller's promises.
        unsafe { capture.launch(graph, stream) }.map_err(status_of)
    }

    fn hipGraphExecDestroy(machine; exec: GraphExecHandle) {
        // Destroyed after the lock is given back.
        let destroyed = machine.state().execs.remove(&exec);
        destroyed.map(drop).ok_or(INVALID_VALUE)
    }

    fn hipThreadExchangeStreamCaptureMode(machine; mode: *mut c_int) => mode {
        // SAFETY: it is not null, for it was accepted above.
        let wanted = mode_of(unsafe { mode.read() })?;
        let capture = machine.current().1.capture().map_err(lacking)?;
        Ok(number_of(capture.exchange_capture_mode(wanted).map_err(status_of)?))
    }
}
