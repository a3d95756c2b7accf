//! Streams.

use std::ffi::{c_int, c_uint};

use cachette_emulated::{query, relaxed};
use cachette_hal::{Device, Event, Progress, Stream, StreamRef};

use crate::capture::status_and_id;
use crate::prelude::*;

abi! {
    fn hipStreamCreateWithFlags(machine; stream: *mut StreamHandle, flags: c_uint) => stream {
        refuse_if(flags > STREAM_NON_BLOCKING, INVALID_VALUE)?;
        let (position, device) = machine.current();
        let stream = device.create_stream().map_err(status_of)?.raw();
        let mut state = machine.state();
        state.streams.insert(stream, position);
        state.destroyed.remove(&stream);
        state.stream_kinds.insert(stream, (flags, 0));
        Ok(stream)
    }

    fn hipStreamDestroy(machine; stream: StreamHandle) {
        if machine.misses(stream) {
            return Ok(());
        }
        let (_, device, found) = machine.any_stream(stream)?;
        refuse_if(found == StreamRef::DEFAULT, INVALID_HANDLE)?;
        if device.capture().is_err() || status_and_id(machine, stream)?.0 == CAPTURE_STATUS_NONE {
            // A stream whose work has failed is destroyed too.
            // SAFETY: 1. the table has it.
            let _ = relaxed(device, |device| unsafe { device.synchronize(found) });
        }
        let mut state = machine.state();
        state.streams.remove(&stream);
        state.stream_kinds.remove(&stream);
        state.destroyed.insert(stream);
        state.captures.release(stream);
        drop(state);
        // SAFETY: 1. the table had it until now.
        unsafe { device.destroy_stream(Stream::from_raw(stream)) }.map_err(status_of)
    }

    fn hipStreamGetDevice(machine; stream: StreamHandle, device: *mut c_int) => device {
        Ok(number(machine.any_stream(stream)?.0))
    }

    fn hipStreamSynchronize(machine; stream: StreamHandle) {
        if machine.misses(stream) {
            return Ok(());
        }
        let (_, device, beneath) = machine.any_stream(stream)?;
        machine.state().captures.check_wait(stream)?;
        // SAFETY: 1. the table has it.
        let waited = unsafe { device.synchronize(beneath) }.map_err(status_of);
        if waited == Err(CAPTURE_UNSUPPORTED) {
            machine.state().captures.broken_by(stream);
        }
        waited
    }

    fn hipStreamQuery(machine; stream: StreamHandle) {
        let (_, device, beneath) = machine.used_stream(stream)?;
        if device.capture().is_ok() && status_and_id(machine, stream)?.0 != CAPTURE_STATUS_NONE {
            return Err(CAPTURE_UNSUPPORTED);
        }
        // SAFETY: 1. the table has it.
        match unsafe { query(device, beneath) }.map_err(status_of)? {
            Progress::Done => Ok(()),
            Progress::Pending => Err(NOT_READY),
        }
    }

    fn hipStreamWaitEvent(machine; stream: StreamHandle, event: EventHandle, flags: c_uint) {
        machine.event(event)?;
        machine.state().captures.check_work(stream)?;
        let (_, device, beneath) = machine.used_stream(stream).map_err(|_| INVALID_HANDLE)?;
        refuse_if(flags != 0, INVALID_VALUE)?;
        // SAFETY: 1. the tables have both.
        unsafe { device.stream_wait(beneath, &Event::from_raw(event)) }.map_err(status_of)?;
        if device.capture().is_ok()
            && let (CAPTURE_STATUS_ACTIVE, id) = status_and_id(machine, stream)?
        {
            machine.state().captures.joined(stream, id);
        }
        Ok(())
    }
}
