//! Page-locked host memory.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use cachette_hal::{DevicePtr, Error, ErrorKind, HostMemory, Reason, Result, sized_call};
use cudarc::driver::sys;

use crate::context::{Context, Group};
use crate::device::device_ptr;
use crate::probe::Property;
use crate::symbols::HostMemoryCalls;

/// Page-locked for every device, and accessible from all of them.
const ALLOCATED: u32 = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
/// The same for memory of the caller.
const REGISTERED: u32 = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;

pub(crate) type CudaHostMemory = Group<HostMemoryCalls>;

impl CudaHostMemory {
    /// Checks the requirements of the group.
    pub(crate) fn probe(context: &Arc<Context>) -> Result<Self, Reason> {
        let calls = context.symbols().host_memory?;
        Property::MAPS_HOST_MEMORY.need(context.core(), context.device)?;
        Ok(Self { context: Arc::clone(context), calls })
    }
}

impl HostMemory for CudaHostMemory {
    fn allocate_pinned(&self, bytes: usize) -> Result<NonNull<u8>> {
        let call = sized_call("cuMemHostAlloc", bytes as u64)?;
        let mut at = ptr::null_mut();
        // SAFETY: the driver writes one pointer.
        self.context.call(call, || unsafe { (self.calls.cuMemHostAlloc)(&raw mut at, bytes, ALLOCATED) })?;
        NonNull::new(at.cast()).ok_or(Error::new(ErrorKind::Other, call))
    }

    unsafe fn free_pinned(&self, ptr: NonNull<u8>) -> Result<()> {
        // SAFETY: 1. and 2. are the caller's promises.
        self.context.call("cuMemFreeHost", || unsafe { (self.calls.cuMemFreeHost)(ptr.as_ptr().cast()) })
    }

    unsafe fn register(&self, ptr: NonNull<u8>, bytes: usize) -> Result<()> {
        let call = sized_call("cuMemHostRegister_v2", bytes as u64)?;
        // SAFETY: that the range is valid and stays so is the caller's promise.
        self.context.call(call, || unsafe { (self.calls.cuMemHostRegister_v2)(ptr.as_ptr().cast(), bytes, REGISTERED) })
    }

    unsafe fn unregister(&self, ptr: NonNull<u8>) -> Result<()> {
        // SAFETY: 1. and 2. are the caller's promises.
        self.context.call("cuMemHostUnregister", || unsafe { (self.calls.cuMemHostUnregister)(ptr.as_ptr().cast()) })
    }

    fn device_address(&self, ptr: NonNull<u8>) -> Result<DevicePtr> {
        let call = "cuMemHostGetDevicePointer_v2";
        let mut at = 0;
        let look_up = self.calls.cuMemHostGetDevicePointer_v2;
        // SAFETY: the driver writes one address, and looks the pointer up without dereferencing it.
        self.context.call(call, || unsafe { look_up(&raw mut at, ptr.as_ptr().cast(), 0) })?;
        device_ptr(call, at)
    }
}
