//! Conversions between the types of `cachette-hal` and those of C.

#![forbid(unsafe_code)]

use std::ffi::c_void;
use std::ptr;

use cachette_hal::DevicePtr;

/// A number of bytes; every supported target has 64-bit addresses.
pub(crate) fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A device's address.
pub(crate) fn pointer(ptr: DevicePtr) -> *mut c_void {
    ptr::with_exposed_provenance_mut(size(ptr.address()))
}

/// An address that a C function returned.
pub(crate) fn address(ptr: *mut c_void) -> u64 {
    ptr.expose_provenance() as u64
}
