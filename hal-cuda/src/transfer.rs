//! Fills and copies in stream order.

use cachette_hal::{DevicePtr, Result, StreamRef, Transfer, sized_call};

use crate::context::Group;
use crate::status::check;
use crate::symbols::TransferCalls;
use crate::types::{pointer, size};

pub(crate) type CudaTransfer = Group<TransferCalls>;

impl Transfer for CudaTransfer {
    unsafe fn fill(&self, at: DevicePtr, byte: u8, bytes: u64, stream: StreamRef) -> Result<()> {
        let call = sized_call("cuMemsetD8Async", bytes)?;
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context.enter_for(stream) }?;
        let stream = pointer(stream.raw());
        // SAFETY: 1. and 3. are the caller's promises.
        check(call, unsafe { (self.calls.cuMemsetD8Async)(at.address(), byte, size(bytes), stream) })
    }

    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: u64, stream: StreamRef) -> Result<()> {
        let call = sized_call("cuMemcpyDtoDAsync_v2", bytes)?;
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context.enter_for(stream) }?;
        let (to, from, stream) = (to.address(), from.address(), pointer(stream.raw()));
        // SAFETY: 1. and 3. are the caller's promises.
        check(call, unsafe { (self.calls.cuMemcpyDtoDAsync_v2)(to, from, size(bytes), stream) })
    }

    unsafe fn upload(&self, to: DevicePtr, from: *const u8, bytes: usize, stream: StreamRef) -> Result<()> {
        let call = sized_call("cuMemcpyHtoDAsync_v2", bytes as u64)?;
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context.enter_for(stream) }?;
        let (to, stream) = (to.address(), pointer(stream.raw()));
        // SAFETY: 1., 3. and 4. are the caller's promises.
        check(call, unsafe { (self.calls.cuMemcpyHtoDAsync_v2)(to, from.cast(), bytes, stream) })
    }

    unsafe fn download(&self, to: *mut u8, from: DevicePtr, bytes: usize, stream: StreamRef) -> Result<()> {
        let call = sized_call("cuMemcpyDtoHAsync_v2", bytes as u64)?;
        // SAFETY: 1. is the caller's promise.
        let _locked = unsafe { self.context.enter_for(stream) }?;
        let (from, stream) = (from.address(), pointer(stream.raw()));
        // SAFETY: 1., 3. and 4. are the caller's promises.
        check(call, unsafe { (self.calls.cuMemcpyDtoHAsync_v2)(to.cast(), from, bytes, stream) })
    }
}
