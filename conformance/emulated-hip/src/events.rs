//! Events.

use std::ffi::c_uint;
use std::sync::Arc;

use cachette_hal::{Device, Event, Progress};

use crate::capture::status_and_id;
use crate::prelude::*;

const RELEASE_TO_DEVICE: c_uint = 0x4000_0000;
const DISABLE_SYSTEM_FENCE: c_uint = 0x2000_0000;
/// Of these one at most.
const RELEASES: c_uint = DISABLE_SYSTEM_FENCE | RELEASE_TO_DEVICE | EVENT_RELEASE_TO_SYSTEM;
const INTERPROCESS: c_uint = 4;
/// Blocking, without timing, for other processes, and those above.
const FLAGS: c_uint = 7 | RELEASES;

const fn is_legal(flags: c_uint) -> bool {
    let timed = flags & EVENT_DISABLE_TIMING == 0;
    let one_release = (flags & RELEASES).count_ones() <= 1;
    flags & !FLAGS == 0 && one_release && (flags & INTERPROCESS == 0 || !timed)
}

/// The status of a wait or a query that a capture forbids: one of the event's own capture has another.
fn refused(machine: &Machine, event: EventHandle, status: Status) -> Status {
    let own = status == CAPTURE_UNSUPPORTED && machine.state().captures.has_event(event);
    if own { CAPTURED_EVENT } else { status }
}

/// Refuses a wait or a query where this version takes the event for a captured one, and breaks the capture: the stream of
/// the last record is captured now, though it was not then.
fn check_stream(machine: &Machine, event: EventHandle) -> Answer {
    let state = machine.state();
    let stream = state.recorded_in.get(&event).copied().filter(|_| !state.captures.has_event(event));
    drop(state);
    let Some(stream) = stream.filter(|_| machine.personality.takes_events_for_captured()) else { return Ok(()) };
    let Ok((CAPTURE_STATUS_ACTIVE, _)) = status_and_id(machine, stream) else { return Ok(()) };
    let (_, device, beneath) = machine.any_stream(stream)?;
    // A wait is forbidden, and breaks the capture beneath.
    // SAFETY: 1. the table has it.
    let _ = unsafe { device.synchronize(beneath) };
    machine.state().captures.broken_by(stream);
    Err(CAPTURED_EVENT)
}

abi! {
    fn hipEventCreateWithFlags(machine; event: *mut EventHandle, flags: c_uint) => event {
        refuse_if(!is_legal(flags), INVALID_VALUE)?;
        let (position, device) = machine.current();
        let event = device.create_event().map_err(status_of)?.raw();
        machine.state().events.insert(event, (position, Arc::default()));
        Ok(event)
    }

    fn hipEventDestroy(machine; event: EventHandle) {
        refuse_if(event == 0, INVALID_HANDLE)?;
        let (_, device) = machine.event(event).map_err(|_| CONTEXT_IS_DESTROYED)?;
        machine.state().events.remove(&event);
        machine.state().recorded_in.remove(&event);
        // SAFETY: 1. the table had it until now.
        unsafe { device.destroy_event(Event::from_raw(event)) }.map_err(status_of)
    }

    fn hipEventRecord(machine; event: EventHandle, stream: StreamHandle) {
        let (owner, _) = machine.event(event)?;
        let (position, device, beneath) = machine.stream(stream)?;
        refuse_if(owner != position, INVALID_HANDLE)?;
        // SAFETY: 1. the tables have both.
        unsafe { device.record(&Event::from_raw(event), beneath) }.map_err(status_of)?;
        let mut state = machine.state();
        state.captures.recorded(event, stream);
        state.recorded_in.insert(event, stream);
        Ok(())
    }

    fn hipEventQuery(machine; event: EventHandle) {
        let (_, device) = machine.event(event)?;
        check_stream(machine, event)?;
        let lock = machine.event_lock(event)?;
        // As long as another thread waits for the event, a query blocks.
        let _alone = lock.lock();
        // SAFETY: 1. the table has it.
        match unsafe { device.poll(&Event::from_raw(event)) }.map_err(|error| refused(machine, event, status_of(error)))? {
            Progress::Done => Ok(()),
            Progress::Pending => Err(NOT_READY),
        }
    }

    fn hipEventSynchronize(machine; event: EventHandle) {
        let (_, device) = machine.event(event)?;
        check_stream(machine, event)?;
        let lock = machine.event_lock(event)?;
        let _alone = lock.lock();
        // SAFETY: 1. the table has it.
        unsafe { device.wait(&Event::from_raw(event)) }.map_err(|error| refused(machine, event, status_of(error)))
    }
}
