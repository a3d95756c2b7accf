//! Types of the driver's C interface where cudarc's cannot be used.
//!
//! Handles, addresses and constants are cudarc's. A status is an integer here: cudarc's is a Rust `enum`, and a value
//! that it does not list would be undefined behaviour. The structs below differ between cudarc's versions in their
//! shape, not in their layout; the assertions check the layout.

use std::ffi::{c_int, c_uchar, c_uint, c_ushort, c_void};
use std::mem::offset_of;
use std::ptr;

use cudarc::driver::sys;

/// The result of a driver function.
pub(crate) type Status = c_int;

/// The device of physical memory, or of an access right.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Location {
    kind: c_uint,
    id: c_int,
}

impl Location {
    /// A device.
    pub(crate) const fn device(device: sys::CUdevice) -> Self {
        Self { kind: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as c_uint, id: device }
    }
}

/// The properties of physical memory.
#[doc(alias = "CUmemAllocationProp")]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackingProperties {
    kind: c_uint,
    handle_types: c_uint,
    location: Location,
    win32_metadata: *mut c_void,
    compression: c_uchar,
    rdma: c_uchar,
    usage: c_ushort,
    reserved: [c_uchar; 4],
}

impl BackingProperties {
    /// Memory of `device` that can be exported by these handles.
    pub(crate) fn new(device: sys::CUdevice, handles: sys::CUmemAllocationHandleType, rdma: bool) -> Self {
        Self {
            kind: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED as c_uint,
            handle_types: handles.0,
            location: Location::device(device),
            win32_metadata: ptr::null_mut(),
            compression: 0,
            rdma: c_uchar::from(rdma),
            usage: 0,
            reserved: [0; 4],
        }
    }
}

/// The right of one device to access a mapping.
#[doc(alias = "CUmemAccessDesc")]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessRight {
    location: Location,
    flags: c_uint,
}

impl AccessRight {
    pub(crate) const fn new(device: sys::CUdevice, flags: sys::CUmemAccess_flags) -> Self {
        Self { location: Location::device(device), flags: flags as c_uint }
    }
}

const _: () = {
    assert!(size_of::<Location>() == size_of::<sys::CUmemLocation>());
    assert!(offset_of!(Location, kind) == offset_of!(sys::CUmemLocation, type_));
    assert!(size_of::<BackingProperties>() == size_of::<sys::CUmemAllocationProp>());
    assert!(align_of::<BackingProperties>() == align_of::<sys::CUmemAllocationProp>());
    assert!(offset_of!(BackingProperties, handle_types) == offset_of!(sys::CUmemAllocationProp, requestedHandleTypes));
    assert!(offset_of!(BackingProperties, location) == offset_of!(sys::CUmemAllocationProp, location));
    assert!(offset_of!(BackingProperties, win32_metadata) == offset_of!(sys::CUmemAllocationProp, win32HandleMetaData));
    assert!(
        offset_of!(BackingProperties, rdma) == offset_of!(sys::CUmemAllocationProp, allocFlags.gpuDirectRDMACapable)
    );
    assert!(size_of::<AccessRight>() == size_of::<sys::CUmemAccessDesc>());
    assert!(offset_of!(AccessRight, flags) == offset_of!(sys::CUmemAccessDesc, flags));
};

/// A size as C counts it.
#[expect(clippy::cast_possible_truncation, reason = "the contract needs a 64-bit target, and asserts it")]
pub(crate) const fn size(bytes: u64) -> usize {
    bytes as usize
}

/// A handle of the contract as the driver's pointer.
pub(crate) fn pointer<T>(handle: usize) -> *mut T {
    ptr::with_exposed_provenance_mut(handle)
}

/// A pointer of the driver as a handle of the contract.
pub(crate) fn handle<T>(pointer: *mut T) -> usize {
    pointer.expose_provenance()
}
