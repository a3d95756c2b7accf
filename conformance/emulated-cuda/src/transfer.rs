//! Fills and copies in stream order; those of no bytes do nothing.

use std::ffi::{c_uchar, c_void};

use cachette_hal::{Device, Transfer};

use crate::prelude::*;

fn transfer() -> Answer<&'static dyn Transfer> {
    current()?.device.transfer().map_err(absent)
}

abi! {
    /// Sets every byte.
    fn cuMemsetD8Async(at: u64, byte: c_uchar, bytes: usize, stream: *mut c_void) {
        let (transfer, stream) = (transfer()?, stream_ref(stream));
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: 1. and 3. are the caller's promises.
        unsafe { transfer.fill(device_ptr(at)?, byte, bytes as u64, stream) }.map_err(told)
    }

    /// Copies between devices, or within one.
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut c_void) {
        let (transfer, stream) = (transfer()?, stream_ref(stream));
        if bytes == 0 {
            return Ok(());
        }
        let (to, from) = (device_ptr(to)?, device_ptr(from)?);
        // SAFETY: 1. and 3. are the caller's promises.
        unsafe { transfer.copy(to, from, bytes as u64, stream) }.map_err(told)
    }

    /// Copies from the host.
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: *mut c_void) {
        let (transfer, stream) = (transfer()?, stream_ref(stream));
        if bytes == 0 {
            return Ok(());
        }
        let to = device_ptr(to)?;
        // SAFETY: 1., 3. and 4. are the caller's promises.
        unsafe { transfer.upload(to, from.cast(), bytes, stream) }.map_err(told)
    }

    /// Copies to the host.
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) {
        let (transfer, stream) = (transfer()?, stream_ref(stream));
        if bytes == 0 {
            return Ok(());
        }
        let from = device_ptr(from)?;
        // SAFETY: 1., 3. and 4. are the caller's promises.
        unsafe { transfer.download(to.cast(), from, bytes, stream) }.map_err(told)
    }
}
