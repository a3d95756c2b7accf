//! Fills and copies in stream order.

use std::ffi::c_int;

use cachette_hal::{DevicePtr, Result, StreamRef, Transfer, sized_call};

use crate::context::{Group, handle};
use crate::symbols::TransferCalls;

pub(crate) type HipTransfer = Group<TransferCalls>;

impl Transfer for HipTransfer {
    unsafe fn fill(&self, at: DevicePtr, byte: u8, bytes: u64, stream: StreamRef) -> Result<()> {
        let call = sized_call("hipMemsetAsync", bytes)?;
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context.enter_for(stream) }?;
        let (at, byte, stream) = (at.address(), c_int::from(byte), handle(stream));
        // SAFETY: 1. and 3. are the caller's promises.
        self.context.check(call, unsafe { (self.calls.hipMemsetAsync)(at, byte, bytes, stream) })
    }

    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: u64, stream: StreamRef) -> Result<()> {
        let call = sized_call("hipMemcpyDtoDAsync", bytes)?;
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context.enter_for(stream) }?;
        let (to, from, stream) = (to.address(), from.address(), handle(stream));
        // SAFETY: 1. and 3. are the caller's promises.
        self.context.check(call, unsafe { (self.calls.hipMemcpyDtoDAsync)(to, from, bytes, stream) })
    }

    unsafe fn upload(&self, to: DevicePtr, from: *const u8, bytes: usize, stream: StreamRef) -> Result<()> {
        let call = sized_call("hipMemcpyHtoDAsync", bytes as u64)?;
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context.enter_for(stream) }?;
        let (to, stream) = (to.address(), handle(stream));
        // SAFETY: 1., 3. and 4. are the caller's promises.
        self.context.check(call, unsafe { (self.calls.hipMemcpyHtoDAsync)(to, from.cast(), bytes, stream) })
    }

    unsafe fn download(&self, to: *mut u8, from: DevicePtr, bytes: usize, stream: StreamRef) -> Result<()> {
        let call = sized_call("hipMemcpyDtoHAsync", bytes as u64)?;
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context.enter_for(stream) }?;
        let (from, stream) = (from.address(), handle(stream));
        // SAFETY: 1., 3. and 4. are the caller's promises.
        self.context.check(call, unsafe { (self.calls.hipMemcpyDtoHAsync)(to.cast(), from, bytes, stream) })
    }
}
