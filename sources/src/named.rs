//! Libraries by name, as the bindings take them.

use std::sync::Arc;

use cachette::source::{Source, SourceError};
use cachette_hal::{DeviceInfo, Vendor};

use crate::{Nccl, Nvshmem, Rocshmem};

/// Opens the library called `name` as a source of memory on `device`: `nccl`, `nvshmem`, `rccl` or `rocshmem`.
///
/// # Safety
///
/// 1. NVSHMEM and rocSHMEM are initialised for the device, and stay so while the source is used.
pub unsafe fn open_named(name: &str, device: &DeviceInfo) -> Result<Arc<dyn Source>, NamedError> {
    let vendor = match name {
        // The second is the name that `nvshmem` had where the first initialised the library.
        "nccl" | "nvshmem" | "nvshmem-adopted" => Vendor::Nvidia,
        "rccl" | "rocshmem" => Vendor::Amd,
        _ => return Err(NamedError::Unknown { name: name.to_owned() }),
    };
    if device.vendor != vendor {
        return Err(NamedError::OtherVendor { name: name.to_owned(), vendor, device: device.vendor });
    }
    Ok(match name {
        "nccl" | "rccl" => Arc::new(Nccl::load(vendor)?),
        // SAFETY: 1. is the caller's promise.
        "rocshmem" => Arc::new(unsafe { Rocshmem::adopt(device.ordinal) }?),
        // SAFETY: 1. is the caller's promise.
        _ => Arc::new(unsafe { Nvshmem::adopt(device.ordinal) }?),
    })
}

/// Why a source was not opened by its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamedError {
    /// No source has this name.
    #[error("there is no source named '{name}'; choose one of nccl, nvshmem, rccl, rocshmem")]
    Unknown {
        /// The name that was given.
        name: String,
    },
    /// The source is for devices of another vendor.
    #[error("the source '{name}' is for {vendor} devices, and this is a {device} one; name another source, or none")]
    OtherVendor {
        /// The name of the source.
        name: String,
        /// The vendor whose devices it serves.
        vendor: Vendor,
        /// The vendor of the device.
        device: Vendor,
    },
    /// The library was not opened.
    #[error(transparent)]
    Source(#[from] SourceError),
}
