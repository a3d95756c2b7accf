//! Fills and copies in stream order.

use std::ffi::c_int;

use cachette_hal::{DevicePtr, Error, ErrorKind, Result, StreamRef, Transfer};

use crate::device::{HipDevice, check_size, handle};
use crate::symbols::TransferSymbols;
use crate::types::Status;

impl HipDevice {
    fn transfer_call(&self, call: &'static str, make: impl FnOnce(&TransferSymbols) -> Status) -> Result<()> {
        self.call_in(&self.driver.symbols.transfer, call, make)
    }
}

impl Transfer for HipDevice {
    unsafe fn fill(&self, at: DevicePtr, byte: u8, bytes: u64, stream: StreamRef) -> Result<()> {
        let call = "hipMemsetAsync";
        check_size(call, bytes)?;
        // SAFETY: 1 and 3. The caller's promises.
        self.transfer_call(call, |hip| unsafe {
            (hip.hipMemsetAsync)(at.address(), c_int::from(byte), bytes, handle(stream))
        })
    }

    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: u64, stream: StreamRef) -> Result<()> {
        let call = "hipMemcpyDtoDAsync";
        check_size(call, bytes)?;
        // SAFETY: 1 and 3. The caller's promises.
        self.transfer_call(call, |hip| unsafe {
            (hip.hipMemcpyDtoDAsync)(to.address(), from.address(), bytes, handle(stream))
        })
    }

    unsafe fn upload(&self, to: DevicePtr, from: *const u8, bytes: usize, stream: StreamRef) -> Result<()> {
        let call = "hipMemcpyHtoDAsync";
        if bytes == 0 {
            return Err(Error::new(ErrorKind::InvalidValue, call));
        }
        // SAFETY: 1, 3 and 4. The caller's promises.
        self.transfer_call(call, |hip| unsafe {
            (hip.hipMemcpyHtoDAsync)(to.address(), from.cast(), bytes, handle(stream))
        })
    }

    unsafe fn download(&self, to: *mut u8, from: DevicePtr, bytes: usize, stream: StreamRef) -> Result<()> {
        let call = "hipMemcpyDtoHAsync";
        if bytes == 0 {
            return Err(Error::new(ErrorKind::InvalidValue, call));
        }
        // SAFETY: 1, 3 and 4. The caller's promises.
        self.transfer_call(call, |hip| unsafe {
            (hip.hipMemcpyDtoHAsync)(to.cast(), from.address(), bytes, handle(stream))
        })
    }
}
