//! Streams with a priority, and whether one is idle.

use std::ffi::{c_int, c_uint, c_void};

use cachette_emulated::query;
use cachette_hal::Progress;

use crate::capture::is_captured;
use crate::device::{cuStreamCreate, unit_of_stream};
use crate::prelude::*;

/// The lowest priority and the highest one, which is the smallest number.
const PRIORITIES: [c_int; 2] = [0, -5];

abi! {
    /// Creates a stream. Its priority is kept, and changes nothing.
    fn cuStreamCreateWithPriority(stream: *mut *mut c_void, flags: c_uint, priority: c_int) {
        // SAFETY: the arguments are the caller's.
        let status = unsafe { cuStreamCreate(stream, flags) };
        refuse_if(status != 0, status)?;
        let [lowest, highest] = PRIORITIES;
        // SAFETY: it was written above.
        let handle = unsafe { stream.read() }.addr();
        driver()?.ledger.priorities.lock().insert(handle, priority.clamp(highest, lowest));
        Ok(())
    }

    fn cuStreamGetPriority(stream: *mut c_void, priority: *mut c_int) => priority {
        unit_of_stream(stream)?;
        Ok(driver()?.ledger.priorities.lock().get(&stream.addr()).copied().unwrap_or(PRIORITIES[0]))
    }

    fn cuCtxGetStreamPriorityRange(lowest: *mut c_int, highest: *mut c_int) {
        current()?;
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(lowest, PRIORITIES[0]) };
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(highest, PRIORITIES[1]) };
        Ok(())
    }

    fn cuStreamQuery(stream: *mut c_void) {
        let unit = unit_of_stream(stream)?;
        refuse_if(is_captured(unit, stream)?, CAPTURE_UNSUPPORTED)?;
        // SAFETY: 1. is the caller's promise.
        match unsafe { query(&unit.device, stream_ref(stream)) }.map_err(told)? {
            Progress::Done => Ok(()),
            Progress::Pending => Err(NOT_READY),
        }
    }
}
