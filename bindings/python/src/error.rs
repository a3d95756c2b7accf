//! Failures as Python exceptions.

use cachette::backends::OpenError;
use cachette::config::ConfigError;
use cachette::{Error, OutOfMemory, hal};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The exceptions of the package, which are written in Python.
mod python {
    pyo3::import_exception!(cachette._errors, Error);
    pyo3::import_exception!(cachette._errors, OutOfMemoryError);
    pyo3::import_exception!(cachette._errors, ConfigError);
}

/// The figures of a request that failed for want of memory; a dictionary in Python.
#[derive(Default, IntoPyObject)]
pub(crate) struct Figures {
    device: Option<u32>,
    requested: u64,
    segment: Option<u64>,
    total: Option<u64>,
    free: Option<u64>,
    limit: Option<u64>,
    allocated: Option<u64>,
    reserved: Option<u64>,
    pending: Option<u64>,
    unallocated: Option<u64>,
    largest_free: Option<u64>,
}

impl Figures {
    /// The figures of `report`.
    pub(crate) const fn of(report: &OutOfMemory) -> Self {
        Self {
            device: Some(report.device.0),
            requested: report.requested,
            segment: Some(report.segment),
            total: report.total,
            free: report.free,
            limit: report.limit,
            allocated: Some(report.allocated),
            reserved: Some(report.reserved),
            pending: Some(report.pending),
            unallocated: Some(report.unallocated()),
            largest_free: Some(report.largest_free),
        }
    }

    /// Only what was asked for.
    fn of_request(requested: u64) -> Self {
        Self {
            requested,
            ..Self::default()
        }
    }
}

/// `cachette.Error` with a text.
pub(crate) fn error(text: impl Into<String>) -> PyErr {
    python::Error::new_err(text.into())
}

/// The exception for what an allocator answered.
pub(crate) fn of_allocator(why: Error) -> PyErr {
    let text = why.to_string();
    match why {
        Error::OutOfMemory(report) => {
            python::OutOfMemoryError::new_err((text, Figures::of(&report)))
        }
        Error::TooLarge { bytes } => {
            python::OutOfMemoryError::new_err((text, Figures::of_request(bytes)))
        }
        Error::InvalidFraction(_) => PyValueError::new_err(text),
        _ => error(text),
    }
}

/// The exception for what a driver answered.
pub(crate) fn of_device(why: hal::Error) -> PyErr {
    of_allocator(why.into())
}

/// The exception for a device that could not be opened.
pub(crate) fn of_open(why: &OpenError) -> PyErr {
    error(why.to_string())
}

/// The exception for a configuration that cannot be read.
pub(crate) fn of_config(why: &ConfigError) -> PyErr {
    python::ConfigError::new_err(why.to_string())
}
