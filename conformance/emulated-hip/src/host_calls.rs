//! Host functions in stream order.

use std::ffi::c_void;

use cachette_hal::Device;

use crate::prelude::*;

/// What a host function is called with.
struct Data(*mut c_void);

// SAFETY: the caller that queues a host function promises that its data may be used on a thread of the driver.
unsafe impl Send for Data {}

impl Data {
    /// Takes the wrapper whole, so that a closure captures it and not the pointer inside.
    fn take(self) -> *mut c_void {
        self.0
    }
}

abi! {
    fn hipLaunchHostFunc(machine; stream: StreamHandle, function: Option<HostFn>, data: *mut c_void) {
        let function = function.ok_or(INVALID_VALUE)?;
        let (_, device, beneath) = machine.stream(stream)?;
        let calls = device.host_calls().map_err(lacking)?;
        let data = Data(data);
        // SAFETY: the caller has given the function and what it is to be called with.
        let call = move || unsafe { function(data.take()) };
        // SAFETY: 1. the table has the stream.
        let queued = unsafe { calls.call_host(beneath, Box::new(call)) }.map_err(status_of);
        if queued == Err(CAPTURE_UNSUPPORTED) {
            machine.state().captures.broken_by(stream);
        }
        queued
    }
}
