//! Properties that a device has or lacks.

use std::ffi::c_uint;

use cachette_hal::{Reason, Result};
use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute};

use crate::status::check;
use crate::symbols::CoreCalls;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Property {
    attribute: c_uint,
    name: &'static str,
}

/// Declares properties by the driver's names.
macro_rules! properties {
    ($($(#[$doc:meta])* $property:ident = $attribute:ident;)*) => {
        impl Property {
            $(
                $(#[$doc])*
                pub(crate) const $property: Self = Self {
                    attribute: Attribute::$attribute as c_uint,
                    name: stringify!($attribute),
                };
            )*
        }
    };
}

properties! {
    /// Addresses and physical memory are separate.
    VIRTUAL_MEMORY = CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    /// Network cards can access physical memory that is created for them.
    RDMA = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
    /// Physical memory can be exported as a file descriptor.
    FILE_DESCRIPTOR = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
    /// The device has stream-ordered pools.
    POOLS = CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
    /// The device can access page-locked host memory.
    MAPS_HOST_MEMORY = CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY;
    /// Memory can be shared with other processes.
    IPC = CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED;
    /// The device shares its memory with the host.
    INTEGRATED = CU_DEVICE_ATTRIBUTE_INTEGRATED;
}

impl Property {
    /// Physical memory can be exported by a fabric handle.
    ///
    /// By number: cudarc has the name only if it is built for CUDA 12.4 or newer.
    pub(crate) const FABRIC: Self = Self { attribute: 128, name: "CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED" };

    /// Returns whether the device has it; a property that the driver does not recognise is absent.
    pub(crate) fn has(self, core: &CoreCalls, device: CUdevice) -> bool {
        number(core, device, self.attribute).is_ok_and(|value| value != 0)
    }

    /// Fails with the reason why a feature is absent, unless the device has the property.
    pub(crate) fn need(self, core: &CoreCalls, device: CUdevice) -> Result<(), Reason> {
        if self.has(core, device) { Ok(()) } else { Err(Reason::DeviceLacks(self.name)) }
    }
}

/// A number that describes the device.
pub(crate) fn number(core: &CoreCalls, device: CUdevice, attribute: c_uint) -> Result<i32> {
    let mut value = 0;
    // SAFETY: the driver writes one number.
    let status = unsafe { (core.cuDeviceGetAttribute)(&raw mut value, attribute, device) };
    check("cuDeviceGetAttribute", status)?;
    Ok(value)
}
