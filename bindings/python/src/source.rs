//! Sources of pools, by name.

use std::sync::Arc;

use cachette::hal::DeviceInfo;
use cachette::source::Source;
use cachette_sources::NamedSource;
use pyo3::prelude::*;

use crate::error;

/// The library called `name`.
pub(crate) fn named(name: &str) -> PyResult<NamedSource> {
    let named = name.parse::<NamedSource>();
    named.map_err(|why| error::error(why.to_string()))
}

/// The source called `name`, for `device`.
pub(crate) fn find(name: &str, device: &DeviceInfo) -> PyResult<Arc<dyn Source>> {
    let library = named(name)?;
    let vendor = library.vendor();
    if device.vendor != vendor {
        let text = format!(
            "the source '{name}' makes memory of {vendor} devices, and '{}' is of {}",
            device.name, device.vendor
        );
        return Err(error::error(text));
    }
    // SAFETY: 1. the documentation requires of the caller that it is initialised for the device.
    let source = unsafe { library.open(device.ordinal) };
    source.map_err(|why| error::of_allocator(why.into()))
}
