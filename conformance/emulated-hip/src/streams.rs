//! Streams.

use std::ffi::c_uint;

use cachette_hal::{CaptureStatus, Device, Event, Progress, Stream, StreamRef};
use cachette_hal_hip::status::{CAPTURE_UNSUPPORTED, INVALID_HANDLE, INVALID_VALUE, NOT_READY};
use cachette_hal_hip::types::{EventHandle, STREAM_NON_BLOCKING, Status, StreamHandle};

use crate::abi::{Out, enter, status_of};

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hipStreamCreateWithFlags(
    stream: *mut StreamHandle,
    flags: c_uint,
) -> Status {
    enter(|machine| {
        // SAFETY: the caller's pointer is null or valid.
        let out = unsafe { Out::new(stream) }?;
        if flags > STREAM_NON_BLOCKING {
            return Err(INVALID_VALUE);
        }
        let (position, device) = machine.current();
        let stream = device.create_stream().map_err(status_of)?.raw();
        machine.state().streams.insert(stream, position);
        out.write(stream);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hipStreamDestroy(stream: StreamHandle) -> Status {
    enter(|machine| {
        let (_, device, found) = machine.stream(stream)?;
        if found == StreamRef::DEFAULT {
            return Err(INVALID_HANDLE);
        }
        machine.state().streams.remove(&stream);
        // SAFETY: 1. the table had it until now.
        unsafe { device.destroy_stream(Stream::from_raw(stream)) }.map_err(status_of)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hipStreamSynchronize(stream: StreamHandle) -> Status {
    enter(|machine| {
        let (_, device, stream) = machine.stream(stream)?;
        // SAFETY: 1. the table has it.
        unsafe { device.synchronize(stream) }.map_err(status_of)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hipStreamQuery(stream: StreamHandle) -> Status {
    enter(|machine| {
        let (_, device, stream) = machine.stream(stream)?;
        if let Ok(capture) = device.capture() {
            // SAFETY: 1. the table has it.
            let status = unsafe { capture.capture_status(stream) }.map_err(status_of)?;
            if status != CaptureStatus::Idle {
                return Err(CAPTURE_UNSUPPORTED);
            }
        }
        let event = device.create_event().map_err(status_of)?;
        // SAFETY: 1. the table has the stream, and the event was made above.
        let recorded = unsafe { device.record(&event, stream) };
        // SAFETY: 1. the event was made above.
        let progress = recorded.and_then(|()| unsafe { device.poll(&event) });
        // SAFETY: 1. the event was made above.
        unsafe { device.destroy_event(event) }.map_err(status_of)?;
        match progress.map_err(status_of)? {
            Progress::Done => Ok(()),
            Progress::Pending => Err(NOT_READY),
        }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hipStreamWaitEvent(
    stream: StreamHandle,
    event: EventHandle,
    flags: c_uint,
) -> Status {
    enter(|machine| {
        machine.event(event)?;
        let found = machine.stream(stream).map_err(|_| INVALID_HANDLE);
        let (_, device, stream) = found?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: 1. the tables have both.
        unsafe { device.stream_wait(stream, &Event::from_raw(event)) }.map_err(status_of)
    })
}
