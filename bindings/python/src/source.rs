//! Sources of pools, by name.

use std::sync::Arc;

use cachette::hal::DeviceInfo;
use cachette::source::Source;
use cachette_sources::{NamedError, open_named};
use pyo3::prelude::*;

use crate::error;

/// The source called `name`, for `device`.
pub(crate) fn find(name: &str, device: &DeviceInfo) -> PyResult<Arc<dyn Source>> {
    // SAFETY: 1. the documentation requires of the caller that it is initialised for the device.
    let source = unsafe { open_named(name, device) };
    source.map_err(|why| match why {
        NamedError::Source(why) => error::of_allocator(why.into()),
        why => error::error(why.to_string()),
    })
}
