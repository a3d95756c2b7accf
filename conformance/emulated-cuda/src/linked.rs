//! Functions that programs over cudarc link with, beyond those that Cachette uses.

use std::ffi::{c_char, c_int, c_void};

use cachette_hal::Device;

use crate::context::unit_of;
use crate::prelude::*;

/// What every status is called: the number says the rest.
const TEXT: &std::ffi::CStr = c"an error of the emulated driver";

abi! {
    /// The text of a status; none for success.
    fn cuGetErrorString(_status: c_int, text: *mut *const c_char) => text {
        Ok(TEXT.as_ptr())
    }

    fn cuMemcpyPeerAsync(
        to: u64,
        to_context: *mut c_void,
        from: u64,
        from_context: *mut c_void,
        bytes: usize,
        stream: *mut c_void,
    ) {
        unit_of(from_context.addr())?;
        let transfer = unit_of(to_context.addr())?.device.transfer().map_err(lacking)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: 1. and 3. are the caller's promises.
        unsafe { transfer.copy(device_ptr(to)?, device_ptr(from)?, bytes as u64, stream_ref(stream)) }.map_err(told)
    }
}
