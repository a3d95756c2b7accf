//! Fills and copies in stream order.

use std::ffi::{c_int, c_void};

use cachette_hal::{Device, DevicePtr, Result, StreamRef, Transfer};
use cachette_hal_hip::status::INVALID_VALUE;
use cachette_hal_hip::types::{Address, Bytes, Status, StreamHandle};

use crate::abi::{Answer, enter, status_of};
use crate::machine::lacking;

fn device_ptr(address: Address) -> Answer<DevicePtr> {
    DevicePtr::new(address).ok_or(INVALID_VALUE)
}

fn host_ptr<T>(pointer: *mut T) -> Answer<*mut T> {
    if pointer.is_null() {
        return Err(INVALID_VALUE);
    }
    Ok(pointer)
}

/// Queues a transfer between two places that `places` checks; one of zero bytes touches neither.
fn queue<P>(
    bytes: u64,
    stream: StreamHandle,
    places: impl FnOnce() -> Answer<P>,
    act: impl FnOnce(&dyn Transfer, P, StreamRef) -> Result<()>,
) -> Status {
    enter(|machine| {
        let (_, device, stream) = machine.stream(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        let transfer = device.transfer().map_err(lacking)?;
        act(transfer, places()?, stream).map_err(status_of)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hipMemsetAsync(
    to: Address,
    value: c_int,
    bytes: Bytes,
    stream: StreamHandle,
) -> Status {
    let byte = value.to_le_bytes()[0];
    let act = |transfer: &dyn Transfer, to, stream| {
        // SAFETY: 1. the table has the stream. 3. The caller's promise.
        unsafe { transfer.fill(to, byte, bytes, stream) }
    };
    queue(bytes, stream, || device_ptr(to), act)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hipMemcpyDtoDAsync(
    to: Address,
    from: Address,
    bytes: Bytes,
    stream: StreamHandle,
) -> Status {
    let places = || Ok((device_ptr(to)?, device_ptr(from)?));
    queue(bytes, stream, places, |transfer, (to, from), stream| {
        // SAFETY: 1. the table has the stream. 3. The caller's promise.
        unsafe { transfer.copy(to, from, bytes, stream) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hipMemcpyHtoDAsync(
    to: Address,
    from: *const c_void,
    bytes: usize,
    stream: StreamHandle,
) -> Status {
    let places = || Ok((device_ptr(to)?, host_ptr(from.cast_mut())?));
    queue(bytes as u64, stream, places, |transfer, (to, from), stream| {
        // SAFETY: 1. the table has the stream. 3 and 4. The caller's promises.
        unsafe { transfer.upload(to, from.cast(), bytes, stream) }
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hipMemcpyDtoHAsync(
    to: *mut c_void,
    from: Address,
    bytes: usize,
    stream: StreamHandle,
) -> Status {
    let places = || Ok((host_ptr(to)?, device_ptr(from)?));
    queue(bytes as u64, stream, places, |transfer, (to, from), stream| {
        // SAFETY: 1. the table has the stream. 3 and 4. The caller's promises.
        unsafe { transfer.download(to.cast(), from, bytes, stream) }
    })
}
