//! Streams captured into graphs.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::thread;
use std::time::Duration;

use cachette_emulated::{Destructor, Recording, UserObject, mode_of, numbers_of};
use cachette_hal::{Device, ErrorKind, StreamRef};

use crate::prelude::*;

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
        let (_, id) = numbers_of::<c_int>(status);
        let mut state = machine.state();
        state.captures.begun(stream, id);
        state.recordings.begin(stream, id);
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
        let memory = state.recordings.end(stream);
        if matches!(&ended, Err(error) if error.kind() == ErrorKind::CaptureBroken) {
            return Err(state.captures.leave(stream, status));
        }
        state.captures.release(stream);
        let ended = ended.map_err(status_of)?;
        let handle = state.handle();
        state.recordings.graphs.insert(handle, Recording::new(device, ended, memory));
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
        let recording = state.recordings.graph(graph)?;
        let handle = state.handle();
        state.recordings.executables.insert(handle, recording);
        Ok(handle)
    }

    fn hipGraphDestroy(machine; graph: GraphHandle) {
        // Destroyed after the lock is given back.
        let destroyed = machine.state().recordings.graphs.remove(&graph);
        destroyed.map(drop).ok_or(INVALID_VALUE)
    }

    fn hipGraphLaunch(machine; exec: GraphExecHandle, stream: StreamHandle) {
        let known = machine.state().recordings.executables.get(&exec).cloned();
        let (_, device, stream) = machine.stream(stream)?;
        let recording = known.ok_or(INVALID_VALUE)?;
        let (capture, graph) = (device.capture().map_err(lacking)?, recording.graph()?);
        recording.allocate()?;
        // SAFETY: 1. the tables have both. 3 and 4. The caller's promises.
        unsafe { capture.launch(graph, stream) }.map_err(status_of)
    }

    fn hipGraphExecDestroy(machine; exec: GraphExecHandle) {
        // Destroyed after the lock is given back.
        let destroyed = machine.state().recordings.executables.remove(&exec);
        destroyed.map(drop).ok_or(INVALID_VALUE)
    }

    fn hipThreadExchangeStreamCaptureMode(machine; mode: *mut c_int) => mode {
        // SAFETY: it is not null, for it was accepted above.
        let wanted = mode_of(unsafe { mode.read() })?;
        let capture = machine.current().1.capture().map_err(lacking)?;
        Ok(capture.exchange_capture_mode(wanted).map_err(status_of)? as c_int)
    }

    fn hipUserObjectCreate(
        machine;
        object: *mut usize,
        data: *mut c_void,
        destroy: Option<Destructor>,
        count: c_uint,
        flags: c_uint,
    ) => object {
        // SAFETY: the caller's promise.
        let made = unsafe { UserObject::new(data, destroy, count, flags) }?;
        let mut state = machine.state();
        let handle = state.handle();
        state.recordings.objects.insert(handle, made);
        Ok(handle)
    }

    fn hipGraphRetainUserObject(machine; graph: GraphHandle, object: usize, count: c_uint, flags: c_uint) {
        machine.state().recordings.retain(graph, object, count, flags)
    }

    /// Copies a graph. The copy shares its memory and objects.
    fn hipGraphClone(machine; copy: *mut GraphHandle, graph: GraphHandle) => copy {
        let mut state = machine.state();
        let recording = state.recordings.graph(graph)?;
        let handle = state.handle();
        state.recordings.graphs.insert(handle, recording);
        Ok(handle)
    }
}
