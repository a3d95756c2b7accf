//! Fills and copies in stream order; those of no bytes do nothing.

use std::ffi::{c_uchar, c_void};

use cachette_hal::{Device, Result, StreamRef, Transfer};

use crate::prelude::*;

/// Queues a transfer; one of no bytes does nothing.
fn queue(
    bytes: usize,
    stream: *mut c_void,
    act: impl FnOnce(&dyn Transfer, StreamRef) -> Answer<Result<()>>,
) -> Answer {
    let transfer = current()?.device.transfer().map_err(lacking)?;
    if bytes == 0 { Ok(()) } else { act(transfer, stream_ref(stream))?.map_err(told) }
}

/// Queues a copy from or to the host. The driver waits for those of pageable memory, and programs rely on it.
fn queue_with_host(
    bytes: usize,
    stream: *mut c_void,
    act: impl FnOnce(&dyn Transfer, StreamRef) -> Answer<Result<()>>,
) -> Answer {
    queue(bytes, stream, act)?;
    if settings().copies_wait {
        // SAFETY: 1. is the caller's promise.
        unsafe { current()?.device.synchronize(stream_ref(stream)) }.map_err(told)?;
    }
    Ok(())
}

abi! {
    fn cuMemsetD8Async(at: u64, byte: c_uchar, bytes: usize, stream: *mut c_void) {
        queue(bytes, stream, |transfer, stream| {
            // SAFETY: 1. and 3. are the caller's promises.
            Ok(unsafe { transfer.fill(device_ptr(at)?, byte, bytes as u64, stream) })
        })
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut c_void) {
        queue(bytes, stream, |transfer, stream| {
            // SAFETY: 1. and 3. are the caller's promises.
            Ok(unsafe { transfer.copy(device_ptr(to)?, device_ptr(from)?, bytes as u64, stream) })
        })
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: *mut c_void) {
        queue_with_host(bytes, stream, |transfer, stream| {
            // SAFETY: 1., 3. and 4. are the caller's promises.
            Ok(unsafe { transfer.upload(device_ptr(to)?, from.cast(), bytes, stream) })
        })
    }

    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) {
        queue_with_host(bytes, stream, |transfer, stream| {
            // SAFETY: 1., 3. and 4. are the caller's promises.
            Ok(unsafe { transfer.download(to.cast(), device_ptr(from)?, bytes, stream) })
        })
    }
}
