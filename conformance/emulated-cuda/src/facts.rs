//! Facts about a device.

use std::ffi::{c_char, c_int};

use cachette_hal::{Device, Feature};

use crate::prelude::*;
use crate::settings::Fabric;
use crate::types::Uuid;

/// First number that stands for no attribute.
const ATTRIBUTES_END: c_int = 200;

/// What `cuDeviceGetAttribute` answers: one number an attribute, zero for what the device does not have.
fn attribute(device: &dyn Device, number: c_int) -> c_int {
    let has = |feature| c_int::from(device.missing(feature).is_none());
    match number {
        // INTEGRATED
        18 => c_int::from(device.info().integrated),
        // CAN_MAP_HOST_MEMORY
        19 => has(Feature::HostMemory),
        // UNIFIED_ADDRESSING
        41 => 1,
        // CONCURRENT_MANAGED_ACCESS
        89 => settings().pages,
        // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
        102 | 103 => has(Feature::VirtualMemory),
        // GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
        110 => c_int::from(settings().rdma),
        // HANDLE_TYPE_FABRIC_SUPPORTED
        128 if settings().fabric != Fabric::Absent => has(Feature::VirtualMemory),
        // MEMORY_POOLS_SUPPORTED
        115 => has(Feature::StreamOrdered),
        // IPC_EVENT_SUPPORTED
        125 => has(Feature::Ipc),
        _ => 0,
    }
}

abi! {
    /// The name, cut off where the place for it ends.
    fn cuDeviceGetName(name: *mut c_char, bytes: c_int, device: c_int) {
        let unit = driver()?.unit(device)?;
        let room = usize::try_from(bytes).map_err(|_| INVALID_VALUE)?;
        refuse_if(name.is_null() || room == 0, INVALID_VALUE)?;
        let text = format!("Emulated CUDA device over {}", unit.device.info().name);
        let kept = text.len().min(room - 1);
        // SAFETY: the caller has room for that many bytes and the zero after them.
        unsafe { name.copy_from_nonoverlapping(text.as_ptr().cast(), kept) };
        // SAFETY: as above.
        let end = unsafe { name.add(kept) };
        // SAFETY: as above.
        unsafe { end.write(0) };
        Ok(())
    }

    fn cuDeviceGetUuid_v2(uuid: *mut Uuid, device: c_int) => uuid {
        let unit = driver()?.unit(device)?;
        Ok(Uuid { bytes: unit.device.info().uuid })
    }

    fn cuDeviceGetAttribute(value: *mut c_int, number: c_int, device: c_int) => value {
        let unit = driver()?.unit(device)?;
        refuse_if(!(1..ATTRIBUTES_END).contains(&number), INVALID_VALUE)?;
        Ok(attribute(&unit.device, number))
    }
}
