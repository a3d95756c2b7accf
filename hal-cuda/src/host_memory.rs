//! Page-locked host memory.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use cachette_hal::{DevicePtr, Error, ErrorKind, HostMemory, Reason, Result};
use cudarc::driver::sys;

use crate::context::Context;
use crate::device::{check_size, device_ptr};
use crate::probe::Property;
use crate::status::check;
use crate::symbols::HostMemoryCalls;

/// Page-locked for every device, and reached by all of them.
const ALLOCATED: u32 = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
/// The same for memory of the caller's.
const REGISTERED: u32 = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;

/// Page-locked memory that one device is asked for.
#[derive(Debug)]
pub(crate) struct CudaHostMemory {
    context: Arc<Context>,
    calls: HostMemoryCalls,
}

impl CudaHostMemory {
    /// Looks for what the group needs.
    pub(crate) fn probe(context: &Arc<Context>) -> Result<Self, Reason> {
        let calls = context.driver().host_memory?;
        Property::MAPS_HOST_MEMORY.need(context.core(), context.device())?;
        Ok(Self { context: Arc::clone(context), calls })
    }
}

impl HostMemory for CudaHostMemory {
    fn allocate_pinned(&self, bytes: usize) -> Result<NonNull<u8>> {
        let call = "cuMemHostAlloc";
        check_size(call, bytes as u64)?;
        let _entered = self.context.enter()?;
        let mut at = ptr::null_mut();
        // SAFETY: the driver writes one pointer.
        let status = unsafe { (self.calls.allocate)(&raw mut at, bytes, ALLOCATED) };
        check(call, status)?;
        NonNull::new(at.cast()).ok_or(Error::new(ErrorKind::Other, call))
    }

    unsafe fn free_pinned(&self, ptr: NonNull<u8>) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: 1. and 2. are the caller's promises.
        let status = unsafe { (self.calls.free)(ptr.as_ptr().cast()) };
        check("cuMemFreeHost", status)
    }

    unsafe fn register(&self, ptr: NonNull<u8>, bytes: usize) -> Result<()> {
        let call = "cuMemHostRegister_v2";
        check_size(call, bytes as u64)?;
        let _entered = self.context.enter()?;
        // SAFETY: that the range is valid and stays so is the caller's promise.
        let status = unsafe { (self.calls.register)(ptr.as_ptr().cast(), bytes, REGISTERED) };
        check(call, status)
    }

    unsafe fn unregister(&self, ptr: NonNull<u8>) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: 1. and 2. are the caller's promises.
        let status = unsafe { (self.calls.unregister)(ptr.as_ptr().cast()) };
        check("cuMemHostUnregister", status)
    }

    fn device_address(&self, ptr: NonNull<u8>) -> Result<DevicePtr> {
        let call = "cuMemHostGetDevicePointer_v2";
        let _entered = self.context.enter()?;
        let mut at = 0;
        // SAFETY: the driver writes one address, and looks the pointer up without following it.
        let status = unsafe { (self.calls.device_address)(&raw mut at, ptr.as_ptr().cast(), 0) };
        check(call, status)?;
        device_ptr(call, at)
    }
}
