//! Host functions in stream order.

use std::ffi::c_void;
use std::ptr;

use cachette_hal::Device;

use crate::prelude::*;

/// `CUhostFn`.
type Function = Option<unsafe extern "C" fn(data: *mut c_void)>;

abi! {
    /// Queues a function; a captured stream refuses it, for the device beneath records none.
    fn cuLaunchHostFunc(stream: *mut c_void, function: Function, data: *mut c_void) {
        let calls = current()?.device.host_calls().map_err(lacking)?;
        let function = function.ok_or(INVALID_VALUE)?;
        let data = data.expose_provenance();
        let call = move || {
            let data = ptr::with_exposed_provenance_mut(data);
            // SAFETY: function and data go together, and may be used on any thread: the caller's promise.
            unsafe { function(data) };
        };
        // SAFETY: 1. is the caller's promise.
        unsafe { calls.call_host(stream_ref(stream), Box::new(call)) }.map_err(told)
    }
}
