//! Facts about a device, read when it is opened.

use std::ffi::{CStr, c_char, c_int};

use cachette_hal::{DeviceInfo, Ordinal, Result, Vendor};
use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUuuid};

use crate::context::Context;
use crate::device::current_memory;
use crate::probe::{Property, number};
use crate::status::check;

/// The alignment of every allocation, by CUDA's programming guide.
const BASE_ALIGNMENT: u64 = 256;
/// Bytes for a name; the driver truncates longer names.
const NAME_BYTES: u8 = 128;

/// The facts of the device whose context is current.
///
/// The total is the one that later calls report: the driver reserves a part of the memory, and only some of its calls
/// count that part.
pub(crate) fn facts(context: &Context, ordinal: Ordinal) -> Result<DeviceInfo> {
    let (core, device) = (context.core(), context.device);
    let total = current_memory(core)?.total;
    let mut info = DeviceInfo::new(ordinal, Vendor::Nvidia, name(context)?, total, BASE_ALIGNMENT);
    info.uuid = uuid(context)?;
    let major = number(core, device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as u32)?;
    let minor = number(core, device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as u32)?;
    info.architecture = Some(format!("sm_{major}{minor}"));
    info.driver = Some(context.driver.info.version);
    info.integrated = Property::INTEGRATED.has(core, device);
    Ok(info)
}

fn name(context: &Context) -> Result<String> {
    let mut name = [0_u8; NAME_BYTES as usize];
    let bytes = c_int::from(NAME_BYTES);
    let start = name.as_mut_ptr().cast::<c_char>();
    // SAFETY: the driver writes at most that many bytes, the last of them zero.
    let status = unsafe { (context.core().cuDeviceGetName)(start, bytes, context.device) };
    check("cuDeviceGetName", status)?;
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    Ok(name.to_string_lossy().into_owned())
}

fn uuid(context: &Context) -> Result<[u8; 16]> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: the driver writes one identity.
    let status = unsafe { (context.core().cuDeviceGetUuid_v2)(&raw mut uuid, context.device) };
    check("cuDeviceGetUuid_v2", status)?;
    Ok(uuid.bytes.map(|byte| byte.to_ne_bytes()[0]))
}
