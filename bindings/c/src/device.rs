//! Facts about devices.

use std::ffi::c_char;

use cachette::Backends;
use cachette::hal::{self, Device, DeviceInfo};

use crate::allocator::AllocatorHandle;
use crate::guard::{call, promises};
use crate::status::Status;
use crate::structure::Structure;
use crate::text;

/// Who made a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Vendor {
    /// Host memory in the place of a device.
    Host = 0,
    /// NVIDIA, through CUDA.
    Nvidia = 1,
    /// AMD, through HIP.
    Amd = 2,
    /// One that this version has no number for.
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

/// Facts about a device that never change.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DeviceFacts {
    /// Its name, cut if it is too long.
    pub name: [c_char; 256],
    /// Its instruction set, such as `sm_90` or `gfx942`; empty where it has none.
    pub architecture: [c_char; 64],
    /// Its identity across processes; all zero where the driver gives none.
    pub uuid: [u8; 16],
    /// Bytes of its memory.
    pub total_memory: u64,
    /// Its number in the driver's list.
    pub ordinal: u32,
    /// Who made it.
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

/// Writes how many devices a backend shows: `"cuda"`, `"hip"` or `"host"`.
///
/// `CACHETTE_ERROR_NO_BACKEND` if its driver cannot be used here; `cachette_last_error` says why.
#[doc = promises!("2 and 3")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_device_count(backend: *const c_char, out_count: *mut u32) -> Status {
    call!([out(out_count), text(backend)], *out_count = Backends::load(backend)?.device_count()?)
}

/// Writes facts about the allocator's device. `size` is `sizeof *out`.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_device_info(
    allocator: *const AllocatorHandle,
    out: *mut DeviceFacts,
    size: usize,
) -> Status {
    call!([handle(allocator), structure(out, size)], out.write(&allocator.inner.device_info().into()))
}

/// Writes how many bytes the device has free now, for all processes together, and how many in all.
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
