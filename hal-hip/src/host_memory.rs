//! Page-locked host memory.

use std::ptr::{self, NonNull};

use cachette_hal::{DevicePtr, Error, ErrorKind, HostMemory, Result};

use crate::device::{HipDevice, address};
use crate::symbols::HostMemorySymbols;
use crate::types::{
    HOST_MALLOC_COHERENT, HOST_MALLOC_MAPPED, HOST_MALLOC_PORTABLE, HOST_REGISTER_MAPPED, HOST_REGISTER_PORTABLE,
    Status,
};

impl HipDevice {
    fn host_call(&self, call: &'static str, make: impl FnOnce(&HostMemorySymbols) -> Status) -> Result<()> {
        self.call_in(&self.driver.symbols.host_memory, call, make)
    }
}

impl HostMemory for HipDevice {
    fn allocate_pinned(&self, bytes: usize) -> Result<NonNull<u8>> {
        let call = "hipHostMalloc";
        if bytes == 0 {
            return Err(Error::new(ErrorKind::InvalidValue, call));
        }
        // Coherence is asked for: what the driver takes without a word depends on the environment.
        let flags = HOST_MALLOC_PORTABLE | HOST_MALLOC_MAPPED | HOST_MALLOC_COHERENT;
        let mut at = ptr::null_mut();
        // SAFETY: the out-parameter outlives the call.
        self.host_call(call, |hip| unsafe { (hip.hipHostMalloc)(&raw mut at, bytes, flags) })?;
        NonNull::new(at.cast()).ok_or(Error::new(ErrorKind::OutOfMemory, call))
    }

    unsafe fn free_pinned(&self, ptr: NonNull<u8>) -> Result<()> {
        // SAFETY: 1 and 2. The caller's promises.
        self.host_call("hipHostFree", |hip| unsafe { (hip.hipHostFree)(ptr.as_ptr().cast()) })
    }

    unsafe fn register(&self, ptr: NonNull<u8>, bytes: usize) -> Result<()> {
        let call = "hipHostRegister";
        if bytes == 0 {
            return Err(Error::new(ErrorKind::InvalidValue, call));
        }
        let flags = HOST_REGISTER_PORTABLE | HOST_REGISTER_MAPPED;
        // SAFETY: the range is valid, as the caller promises.
        self.host_call(call, |hip| unsafe { (hip.hipHostRegister)(ptr.as_ptr().cast(), bytes, flags) })
    }

    unsafe fn unregister(&self, ptr: NonNull<u8>) -> Result<()> {
        // SAFETY: 1 and 2. The caller's promises.
        self.host_call("hipHostUnregister", |hip| unsafe { (hip.hipHostUnregister)(ptr.as_ptr().cast()) })
    }

    fn device_address(&self, ptr: NonNull<u8>) -> Result<DevicePtr> {
        let call = "hipHostGetDevicePointer";
        let mut at = 0;
        // SAFETY: the out-parameter outlives the call, and any address may be asked about.
        let asked =
            self.host_call(call, |hip| unsafe { (hip.hipHostGetDevicePointer)(&raw mut at, ptr.as_ptr().cast(), 0) });
        asked.map_err(|error| match (error.kind(), error.status()) {
            // An address that is not known is the caller's mistake here, by whatever name.
            (ErrorKind::InvalidHandle, Some(status)) => Error::from_status(ErrorKind::InvalidValue, call, status),
            _ => error,
        })?;
        address(call, at)
    }
}
