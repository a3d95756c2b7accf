//! Fills and copies in stream order.

use std::ffi::{c_int, c_void};

use cachette_hal::{Device, DevicePtr, Result, StreamRef, Transfer};

use crate::copies::is_known;
use crate::prelude::*;

fn device_ptr(address: Address) -> Answer<DevicePtr> {
    DevicePtr::new(address).ok_or(INVALID_VALUE)
}

fn host_ptr<T>(pointer: *mut T) -> Answer<*mut T> {
    if pointer.is_null() { Err(INVALID_VALUE) } else { Ok(pointer) }
}

/// Queues a transfer; one of zero bytes touches nothing.
fn queue(
    machine: &Machine,
    bytes: u64,
    stream: StreamHandle,
    act: impl FnOnce(&dyn Transfer, StreamRef) -> Answer<Result<()>>,
) -> Answer {
    if machine.any_stream(stream).is_err() {
        crash("a destroyed stream is used for a transfer");
    }
    let (_, device, stream) = machine.stream(stream)?;
    if bytes == 0 {
        return Ok(());
    }
    act(device.transfer().map_err(lacking)?, stream)?.map_err(status_of)
}

abi! {
    fn hipMemsetAsync(machine; to: Address, value: c_int, bytes: Bytes, stream: StreamHandle) {
        refuse_if(bytes > 0 && !is_known(machine, to, bytes)?, INVALID_VALUE)?;
        queue(machine, bytes, stream, |transfer, stream| {
            // SAFETY: 1. the table has the stream. 3. The caller's promise.
            Ok(unsafe { transfer.fill(device_ptr(to)?, value.to_le_bytes()[0], bytes, stream) })
        })
    }

    fn hipMemcpyDtoDAsync(machine; to: Address, from: Address, bytes: Bytes, stream: StreamHandle) {
        queue(machine, bytes, stream, |transfer, stream| {
            // SAFETY: 1. the table has the stream. 3. The caller's promise.
            Ok(unsafe { transfer.copy(device_ptr(to)?, device_ptr(from)?, bytes, stream) })
        })
    }

    fn hipMemcpyHtoDAsync(machine; to: Address, from: *const c_void, bytes: usize, stream: StreamHandle) {
        queue(machine, bytes as u64, stream, |transfer, stream| {
            let (to, from) = (device_ptr(to)?, host_ptr(from.cast_mut())?);
            // SAFETY: 1. the table has the stream. 3 and 4. The caller's promises.
            Ok(unsafe { transfer.upload(to, from.cast(), bytes, stream) })
        })
    }

    fn hipMemcpyDtoHAsync(machine; to: *mut c_void, from: Address, bytes: usize, stream: StreamHandle) {
        queue(machine, bytes as u64, stream, |transfer, stream| {
            let (to, from) = (host_ptr(to)?, device_ptr(from)?);
            // SAFETY: 1. the table has the stream. 3 and 4. The caller's promises.
            Ok(unsafe { transfer.download(to.cast(), from, bytes, stream) })
        })
    }
}
