//! Properties of devices.

use std::ffi::c_char;

use cachette::Backends;
use cachette::hal::{self, Device, DeviceInfo};

use crate::allocator::AllocatorHandle;
use crate::guard::{call, promises};
use crate::status::Status;
use crate::structure::Structure;
use crate::text;

/// The vendor of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Vendor {
    /// Host memory instead of a device.
    Host = 0,
    /// NVIDIA, through CUDA.
    Nvidia = 1,
    /// AMD, through HIP.
    Amd = 2,
    /// Unknown to this version.
    Other = 3,
}

impl From<hal::Vendor> for Vendor {
    fn from(vendor: hal::Vendor) -> Self {
        match vendor {
            hal::Vendor::Host => Self::Host,
            hal::Vendor::Nvidia => Self::Nvidia,
            hal::Vendor::Amd => Self::Amd,
            _ => Self::Other,
        }
    }
}

/// Constant properties of a device.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DeviceFacts {
    /// Its name, truncated if it is too long.
    pub name: [c_char; 256],
    /// Its instruction set, such as `sm_90` or `gfx942`; empty if it has none.
    pub architecture: [c_char; 64],
    /// Its identity across processes; all zero if the driver reports none.
    pub uuid: [u8; 16],
    /// Its memory in bytes.
    pub total_memory: u64,
    /// Its ordinal in the driver's list.
    pub ordinal: u32,
    /// Its vendor.
    pub vendor: Vendor,
    /// Whether it shares its memory with the host.
    pub integrated: bool,
}

impl Structure for DeviceFacts {
    const FIRST_SIZE: usize = 360;
}

impl From<&DeviceInfo> for DeviceFacts {
    fn from(info: &DeviceInfo) -> Self {
        Self {
            name: text::array(&info.name),
            architecture: text::array(info.architecture.as_deref().unwrap_or("")),
            uuid: info.uuid,
            total_memory: info.total_memory,
            ordinal: info.ordinal.0,
            vendor: info.vendor.into(),
            integrated: info.integrated,
        }
    }
}

/// Writes the number of visible devices of a backend: `"cuda"`, `"hip"` or `"host"`.
///
/// Returns `CACHETTE_ERROR_NO_BACKEND` if its driver cannot be used; `cachette_last_error` has the reason.
#[doc = promises!("2 and 3")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_device_count(backend: *const c_char, out_count: *mut u32) -> Status {
    call!([out(out_count), text(backend)], *out_count = Backends::load(backend)?.device_count()?)
}

/// Writes the properties of the allocator's device. `size` is `sizeof *out`.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_device_info(
    allocator: *const AllocatorHandle,
    out: *mut DeviceFacts,
    size: usize,
) -> Status {
    call!([handle(allocator), structure(out, size)], out.write(&allocator.inner.device_info().into()))
}

/// Writes the device's free memory, for all processes together, and its total memory, in bytes.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_memory_info(
    allocator: *const AllocatorHandle,
    out_free: *mut u64,
    out_total: *mut u64,
) -> Status {
    call!([out(out_free), out(out_total), handle(allocator)], {
        let info = allocator.inner.device().memory_info()?;
        (*out_free, *out_total) = (info.free, info.total);
    })
}
