//! C types of the interface, with numbers where `cuda.h` has an enumeration.

use std::ffi::{c_int, c_uchar, c_uint, c_ushort, c_void};

/// `CUuuid`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uuid {
    pub(crate) bytes: [c_uchar; 16],
}

/// `CUipcMemHandle`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) bytes: [c_uchar; 64],
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Location {
    pub(crate) kind: c_uint,
    pub(crate) id: c_int,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
    pub(crate) kind: c_uint,
    pub(crate) handle_types: c_uint,
    pub(crate) location: Location,
    pub(crate) win32_metadata: *mut c_void,
    pub(crate) compression: c_uchar,
    pub(crate) rdma: c_uchar,
    pub(crate) usage: c_ushort,
    pub(crate) reserved: [c_uchar; 4],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Right {
    pub(crate) location: Location,
    pub(crate) flags: c_uint,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use cudarc::driver::sys;

    use super::*;

    #[test]
    fn structs_are_laid_out_as_in_the_header() {
        assert_eq!(size_of::<Uuid>(), size_of::<sys::CUuuid>());
        assert_eq!(size_of::<Token>(), size_of::<sys::CUipcMemHandle>());
        assert_eq!(size_of::<Location>(), size_of::<sys::CUmemLocation>());
        assert_eq!(size_of::<Right>(), size_of::<sys::CUmemAccessDesc>());
        assert_eq!(offset_of!(Right, flags), offset_of!(sys::CUmemAccessDesc, flags));
        assert_eq!(size_of::<Properties>(), size_of::<sys::CUmemAllocationProp>());
        assert_eq!(offset_of!(Properties, handle_types), offset_of!(sys::CUmemAllocationProp, requestedHandleTypes));
        assert_eq!(offset_of!(Properties, location), offset_of!(sys::CUmemAllocationProp, location));
        assert_eq!(offset_of!(Properties, rdma), offset_of!(sys::CUmemAllocationProp, allocFlags.gpuDirectRDMACapable));
    }
}
