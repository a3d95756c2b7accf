//! Conversions of addresses and streams between C and the allocator.

#![forbid(unsafe_code)]

use std::ffi::c_void;
use std::ptr;

use cachette::hal::{DevicePtr, StreamRef};

use crate::failure::Failure;

/// A device address as a number.
pub(crate) fn address_of(pointer: *mut c_void) -> u64 {
    pointer.expose_provenance() as u64
}

/// A device address as a C pointer; targets are 64 bits wide.
pub(crate) fn pointer_to(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(usize::MAX))
}

/// A device address that must not be null.
pub(crate) fn device_pointer(pointer: *mut c_void, name: &str) -> Result<DevicePtr, Failure> {
    DevicePtr::new(address_of(pointer)).ok_or_else(|| Failure::null(name))
}

/// A stream from the vendor's handle.
pub(crate) fn stream_of(handle: *mut c_void) -> StreamRef {
    StreamRef::from_raw(handle.expose_provenance())
}

/// The vendor's handle of a stream.
pub(crate) fn handle_of(stream: StreamRef) -> *mut c_void {
    ptr::with_exposed_provenance_mut(stream.raw())
}
