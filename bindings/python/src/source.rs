//! Libraries whose memory a pool gives out.

use std::sync::Arc;

use cachette::hal::{DeviceInfo, Vendor};
use cachette::source::{Nccl, Nvshmem, Rocshmem, Source, SourceError};
use cachette_torch::NamedSource;
use pyo3::prelude::*;

use crate::error;

/// The library called `name`.
pub(crate) fn named(name: &str) -> PyResult<NamedSource> {
    let named = name.parse::<NamedSource>();
    named.map_err(|why| error::error(why.to_string()))
}

/// A source of memory of `device` by the library called `name`.
pub(crate) fn find(name: &str, device: &DeviceInfo) -> PyResult<Arc<dyn Source>> {
    let library = named(name)?;
    let vendor = match library {
        NamedSource::Rccl | NamedSource::Rocshmem => Vendor::Amd,
        _ => Vendor::Nvidia,
    };
    if device.vendor != vendor {
        let text = format!(
            "the source '{name}' makes memory of {vendor} devices, and '{}' is of {}",
            device.name, device.vendor
        );
        return Err(error::error(text));
    }
    open(library, device).map_err(|why| error::of_allocator(why.into()))
}

fn open(library: NamedSource, device: &DeviceInfo) -> Result<Arc<dyn Source>, SourceError> {
    Ok(match library {
        // SAFETY: 1. that it is initialised for the device is the caller's promise, as the documentation says.
        NamedSource::Nvshmem => Arc::new(unsafe { Nvshmem::adopt(device.ordinal) }?),
        // SAFETY: 1. as above.
        NamedSource::Rocshmem => Arc::new(unsafe { Rocshmem::adopt(device.ordinal) }?),
        _ => Arc::new(Nccl::load(device.vendor)?),
    })
}
