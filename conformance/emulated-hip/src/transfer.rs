//! Fills and copies in stream order.

use std::ffi::{c_int, c_void};

use cachette_hal::{Device, DevicePtr};
use cachette_hal_hip::status::INVALID_VALUE;
use cachette_hal_hip::types::{Address, Bytes, Status, StreamHandle};

use crate::abi::{Answer, enter, status_of};
use crate::machine::lacking;

fn device_ptr(address: Address) -> Answer<DevicePtr> {
    DevicePtr::new(address).ok_or(INVALID_VALUE)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hipMemsetAsync(
    to: Address,
    value: c_int,
    bytes: Bytes,
    stream: StreamHandle,
) -> Status {
    enter(|machine| {
        let (_, device, stream) = machine.stream(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        let transfer = device.transfer().map_err(lacking)?;
        let byte = value.to_le_bytes()[0];
        // SAFETY: 1. the table has the stream. 3. The caller's promise.
        unsafe { transfer.fill(device_ptr(to)?, byte, bytes, stream) }.map_err(status_of)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hipMemcpyDtoDAsync(
    to: Address,
    from: Address,
    bytes: Bytes,
    stream: StreamHandle,
) -> Status {
    enter(|machine| {
        let (_, device, stream) = machine.stream(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        let transfer = device.transfer().map_err(lacking)?;
        let (to, from) = (device_ptr(to)?, device_ptr(from)?);
        // SAFETY: 1. the table has the stream. 3. The caller's promise.
        unsafe { transfer.copy(to, from, bytes, stream) }.map_err(status_of)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hipMemcpyHtoDAsync(
    to: Address,
    from: *const c_void,
    bytes: usize,
    stream: StreamHandle,
) -> Status {
    enter(|machine| {
        let (_, device, stream) = machine.stream(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        if from.is_null() {
            return Err(INVALID_VALUE);
        }
        let (transfer, to) = (device.transfer().map_err(lacking)?, device_ptr(to)?);
        // SAFETY: 1. the table has the stream. 3 and 4. The caller's promises.
        unsafe { transfer.upload(to, from.cast(), bytes, stream) }.map_err(status_of)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hipMemcpyDtoHAsync(
    to: *mut c_void,
    from: Address,
    bytes: usize,
    stream: StreamHandle,
) -> Status {
    enter(|machine| {
        let (_, device, stream) = machine.stream(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        if to.is_null() {
            return Err(INVALID_VALUE);
        }
        let (transfer, from) = (device.transfer().map_err(lacking)?, device_ptr(from)?);
        // SAFETY: 1. the table has the stream. 3 and 4. The caller's promises.
        unsafe { transfer.download(to.cast(), from, bytes, stream) }.map_err(status_of)
    })
}
