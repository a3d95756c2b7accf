//! Errors as Python exceptions.

use cachette::backends::OpenError;
use cachette::config::ConfigError;
use cachette::{Error, hal};
use cachette_process::StartError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::report::Figures;

/// The exceptions of the package, which are defined in Python.
mod python {
    pyo3::import_exception!(cachette._errors, Error);
    pyo3::import_exception!(cachette._errors, OutOfMemoryError);
    pyo3::import_exception!(cachette._errors, ConfigError);
    pyo3::import_exception!(cachette._errors, HistoryError);
}

/// `cachette.Error` with a text.
pub(crate) fn error(text: impl Into<String>) -> PyErr {
    python::Error::new_err(text.into())
}

/// Converts an allocator's error to an exception.
pub(crate) fn of_allocator(why: Error) -> PyErr {
    let text = why.to_string();
    match why {
        Error::OutOfMemory(report) => python::OutOfMemoryError::new_err((text, Figures::of(&report))),
        Error::TooLarge { bytes } => {
            let figures = Figures::of_request(bytes, text.clone());
            python::OutOfMemoryError::new_err((text, figures))
        }
        Error::InvalidFraction(_) => PyValueError::new_err(text),
        _ => error(text),
    }
}

/// Converts a driver's error to an exception.
pub(crate) fn of_device(why: hal::Error) -> PyErr {
    of_allocator(why.into())
}

/// Converts an error of the shared allocators to an exception.
pub(crate) fn of_process(why: cachette_process::Error) -> PyErr {
    match why {
        cachette_process::Error::Start(StartError::Config(why)) => of_config(&why),
        cachette_process::Error::Memory(why) => of_allocator(why),
        _ => error(why.to_string()),
    }
}

/// The exception for a device that could not be opened.
pub(crate) fn of_open(why: &OpenError) -> PyErr {
    error(why.to_string())
}

/// The exception for an invalid configuration.
pub(crate) fn of_config(why: &ConfigError) -> PyErr {
    python::ConfigError::new_err(why.to_string())
}

/// The exception for invalid history options.
pub(crate) fn of_history(text: &str) -> PyErr {
    python::HistoryError::new_err(text.to_owned())
}
