//! Page-locked host memory.

use std::ffi::{c_uint, c_void};
use std::ptr::NonNull;

use cachette_hal::{Device, HostMemory};

use crate::prelude::*;

/// Every flag of an allocation: portable, mapped, write-combined.
const ALLOCATION_FLAGS: c_uint = 7;
/// Every flag of a registration: portable, mapped, of a device, read-only.
const REGISTRATION_FLAGS: c_uint = 15;

fn memory() -> Answer<&'static dyn HostMemory> {
    current()?.device.host_memory().map_err(lacking)
}

fn host_ptr(ptr: *mut c_void) -> Answer<NonNull<u8>> {
    NonNull::new(ptr.cast()).ok_or(INVALID_VALUE)
}

abi! {
    fn cuMemHostAlloc(ptr: *mut *mut c_void, bytes: usize, flags: c_uint) => ptr {
        refuse_if(ptr.is_null() || flags > ALLOCATION_FLAGS, INVALID_VALUE)?;
        let pinned = memory()?.allocate_pinned(bytes).map_err(told)?;
        Ok(pinned.as_ptr().cast())
    }

    /// The same without flags.
    fn cuMemAllocHost_v2(ptr: *mut *mut c_void, bytes: usize) => ptr {
        refuse_if(ptr.is_null(), INVALID_VALUE)?;
        Ok(memory()?.allocate_pinned(bytes).map_err(told)?.as_ptr().cast())
    }

    fn cuMemFreeHost(ptr: *mut c_void) {
        // SAFETY: 1. and 2. are the caller's promises.
        unsafe { memory()?.free_pinned(host_ptr(ptr)?) }.map_err(told)
    }

    fn cuMemHostRegister_v2(ptr: *mut c_void, bytes: usize, flags: c_uint) {
        refuse_if(flags > REGISTRATION_FLAGS, INVALID_VALUE)?;
        // SAFETY: the caller's promise.
        unsafe { memory()?.register(host_ptr(ptr)?, bytes) }.map_err(told)
    }

    fn cuMemHostUnregister(ptr: *mut c_void) {
        // SAFETY: 1. and 2. are the caller's promises.
        unsafe { memory()?.unregister(host_ptr(ptr)?) }.map_err(told)
    }

    /// The address by which the device reaches page-locked memory.
    fn cuMemHostGetDevicePointer_v2(at: *mut u64, ptr: *mut c_void, flags: c_uint) => at {
        refuse_if(flags != 0, INVALID_VALUE)?;
        let address = memory()?.device_address(host_ptr(ptr)?).map_err(told)?;
        Ok(address.address())
    }
}
