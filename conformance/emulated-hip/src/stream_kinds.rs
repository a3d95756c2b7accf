//! Streams with a priority, and the device of a stream.

use std::ffi::{c_int, c_uint};

use crate::prelude::*;
use crate::streams::hipStreamCreateWithFlags;

/// The lowest priority and the highest one, which is the smallest number.
const PRIORITIES: [c_int; 2] = [1, -1];

abi! {
    fn hipStreamCreate(_machine; stream: *mut StreamHandle) {
        // SAFETY: the arguments are the caller's.
        let status = unsafe { hipStreamCreateWithFlags(stream, 0) };
        refuse_if(status != SUCCESS, status)
    }

    /// Creates a stream. Its priority is kept, and changes nothing.
    fn hipStreamCreateWithPriority(machine; stream: *mut StreamHandle, flags: c_uint, priority: c_int) {
        // SAFETY: the arguments are the caller's.
        let status = unsafe { hipStreamCreateWithFlags(stream, flags) };
        refuse_if(status != SUCCESS, status)?;
        let [lowest, highest] = PRIORITIES;
        // SAFETY: it was written above.
        let handle = unsafe { stream.read() };
        machine.state().priorities.insert(handle, priority.clamp(highest, lowest));
        Ok(())
    }

    /// Creates a stream for some of the compute units. The mask changes nothing.
    fn hipExtStreamCreateWithCUMask(_machine; stream: *mut StreamHandle, words: c_uint, mask: *const c_uint) {
        refuse_if(words == 0 || mask.is_null(), INVALID_VALUE)?;
        // SAFETY: the arguments are the caller's.
        let status = unsafe { hipStreamCreateWithFlags(stream, 0) };
        refuse_if(status != SUCCESS, status)
    }

    fn hipStreamGetPriority(machine; stream: StreamHandle, priority: *mut c_int) => priority {
        machine.any_stream(stream)?;
        Ok(machine.state().priorities.get(&stream).copied().unwrap_or(0))
    }

    fn hipStreamGetDevice(machine; stream: StreamHandle, device: *mut c_int) => device {
        Ok(number(machine.any_stream(stream)?.0))
    }
}
