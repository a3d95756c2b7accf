//! Page-locked host memory.

use std::ptr::{self, NonNull};

use cachette_hal::{DevicePtr, Error, ErrorKind, HostMemory, Result, sized_call};

use crate::context::Group;
use crate::device::device_ptr;
use crate::symbols::HostMemoryCalls;
use crate::types::{
    HOST_MALLOC_COHERENT, HOST_MALLOC_MAPPED, HOST_MALLOC_PORTABLE, HOST_REGISTER_MAPPED, HOST_REGISTER_PORTABLE,
};

/// Page-locked for and accessible from every device. Without a flag, the environment decides the coherence.
const ALLOCATED: u32 = HOST_MALLOC_PORTABLE | HOST_MALLOC_MAPPED | HOST_MALLOC_COHERENT;
/// The same for memory of the caller.
const REGISTERED: u32 = HOST_REGISTER_PORTABLE | HOST_REGISTER_MAPPED;

pub(crate) type HipHostMemory = Group<HostMemoryCalls>;

impl HostMemory for HipHostMemory {
    fn allocate_pinned(&self, bytes: usize) -> Result<NonNull<u8>> {
        let call = sized_call("hipHostMalloc", bytes as u64)?;
        let mut at = ptr::null_mut();
        // SAFETY: the driver writes one pointer.
        self.context.call(call, || unsafe { (self.calls.hipHostMalloc)(&raw mut at, bytes, ALLOCATED) })?;
        NonNull::new(at.cast()).ok_or(Error::new(ErrorKind::OutOfMemory, call))
    }

    unsafe fn free_pinned(&self, ptr: NonNull<u8>) -> Result<()> {
        // SAFETY: 1. and 2. are the caller's promises.
        self.context.call("hipHostFree", || unsafe { (self.calls.hipHostFree)(ptr.as_ptr().cast()) })
    }

    unsafe fn register(&self, ptr: NonNull<u8>, bytes: usize) -> Result<()> {
        let call = sized_call("hipHostRegister", bytes as u64)?;
        // SAFETY: that the range is valid and stays so is the caller's promise.
        self.context.call(call, || unsafe { (self.calls.hipHostRegister)(ptr.as_ptr().cast(), bytes, REGISTERED) })
    }

    unsafe fn unregister(&self, ptr: NonNull<u8>) -> Result<()> {
        // SAFETY: 1. and 2. are the caller's promises.
        self.context.call("hipHostUnregister", || unsafe { (self.calls.hipHostUnregister)(ptr.as_ptr().cast()) })
    }

    fn device_address(&self, ptr: NonNull<u8>) -> Result<DevicePtr> {
        let call = "hipHostGetDevicePointer";
        let mut at = 0;
        let look_up = self.calls.hipHostGetDevicePointer;
        // SAFETY: the driver writes one address, and looks the pointer up without dereferencing it.
        let answer = self.context.call(call, || unsafe { look_up(&raw mut at, ptr.as_ptr().cast(), 0) });
        answer.map_err(|error| match (error.kind(), error.status()) {
            // The driver's status for an unknown address.
            (ErrorKind::InvalidHandle, Some(_)) => error.with_kind(ErrorKind::InvalidValue),
            _ => error,
        })?;
        device_ptr(call, at)
    }
}
