//! Streams captured into graphs.

use std::ffi::{c_int, c_ulonglong};
use std::thread;
use std::time::Duration;

use cachette_hal::{CaptureMode, CaptureStatus, Device, ErrorKind, Graph, StreamRef};

use crate::prelude::*;

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
        machine.state().captures.begun(stream, numbers_of(status).1);
        Ok(())
    }

    fn hipStreamEndCapture(machine; stream: StreamHandle, graph: *mut GraphHandle) => graph {
        let status = status_and_id(machine, stream)?.0;
        machine.state().captures.begin_end(stream, status)?;
        // Long enough for a second end by another thread to come in between.
        thread::sleep(Duration::from_millis(1));
        let (position, device, beneath) = machine.any_stream(stream)?;
        let capture = device.capture().map_err(lacking)?;
        // SAFETY: 1. the table has it.
        let ended = unsafe { capture.end_capture(beneath) };
        let mut state = machine.state();
        if matches!(&ended, Err(error) if error.kind() == ErrorKind::CaptureBroken) {
            return Err(state.captures.leave(stream, status));
        }
        state.captures.release(stream);
        let ended = ended.map_err(status_of)?;
        let handle = state.handle();
        state.graphs.insert(handle, (position, Some(ended.raw())));
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
        let (position, beneath) = state.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?;
        // A graph beneath is ready to launch as it is, and is one only.
        let (position, exec) = (*position, beneath.take().ok_or(NOT_SUPPORTED)?);
        state.execs.insert(exec, position);
        Ok(exec)
    }

    fn hipGraphDestroy(machine; graph: GraphHandle) {
        let (position, beneath) = machine.state().graphs.remove(&graph).ok_or(INVALID_VALUE)?;
        let Some(beneath) = beneath else { return Ok(()) };
        let capture = machine.devices[position].capture().map_err(lacking)?;
        // SAFETY: 1. the table had it until now.
        unsafe { capture.destroy_graph(Graph::from_raw(beneath)) }.map_err(status_of)
    }

    fn hipGraphLaunch(machine; exec: GraphExecHandle, stream: StreamHandle) {
        let known = machine.state().execs.contains_key(&exec);
        let (_, device, stream) = machine.stream(stream)?;
        refuse_if(!known, INVALID_VALUE)?;
        let capture = device.capture().map_err(lacking)?;
        // SAFETY: 1. the tables have both. 3 and 4. The caller's promises.
        unsafe { capture.launch(&Graph::from_raw(exec), stream) }.map_err(status_of)
    }

    fn hipGraphExecDestroy(machine; exec: GraphExecHandle) {
        let position = machine.state().execs.remove(&exec).ok_or(INVALID_VALUE)?;
        let capture = machine.devices[position].capture().map_err(lacking)?;
        // SAFETY: 1. the table had it until now.
        unsafe { capture.destroy_graph(Graph::from_raw(exec)) }.map_err(status_of)
    }

    fn hipThreadExchangeStreamCaptureMode(machine; mode: *mut c_int) => mode {
        // SAFETY: it is not null, for it was accepted above.
        let wanted = mode_of(unsafe { mode.read() })?;
        let capture = machine.current().1.capture().map_err(lacking)?;
        Ok(number_of(capture.exchange_capture_mode(wanted).map_err(status_of)?))
    }
}
