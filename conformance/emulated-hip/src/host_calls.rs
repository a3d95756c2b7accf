//! Host functions in stream order.

use std::ffi::c_void;
use std::ptr;

use cachette_hal::Device;

use crate::prelude::*;

abi! {
    fn hipLaunchHostFunc(machine; stream: StreamHandle, function: Option<HostFn>, data: *mut c_void) {
        let function = function.ok_or(INVALID_VALUE)?;
        let (_, device, beneath) = machine.stream(stream)?;
        let calls = device.host_calls().map_err(lacking)?;
        let data = data.expose_provenance();
        // SAFETY: function and data go together, and may be used on any thread: the caller's promise.
        let call = move || unsafe { function(ptr::with_exposed_provenance_mut(data)) };
        // SAFETY: 1. the table has the stream.
        let queued = unsafe { calls.call_host(beneath, Box::new(call)) }.map_err(status_of);
        if queued == Err(CAPTURE_UNSUPPORTED) {
            machine.state().captures.broken_by(stream);
        }
        queued
    }
}
