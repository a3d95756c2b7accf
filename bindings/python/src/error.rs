//! Errors as Python exceptions.

use cachette::config::ConfigError;
use cachette::{Error, hal};
use cachette_process::StartError;
use pyo3::PyErrArguments;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::report::{Figures, Holders};

/// The exceptions of the package, which are defined in Python.
///
/// They are imported with the module: at the end of the interpreter an error can no longer import anything.
static KINDS: PyOnceLock<Kinds> = PyOnceLock::new();

struct Kinds {
    error: Py<PyType>,
    out_of_memory: Py<PyType>,
    config: Py<PyType>,
    history: Py<PyType>,
    pool: Py<PyType>,
}

/// Imports the exceptions of the package.
pub(crate) fn import(py: Python<'_>) -> PyResult<()> {
    let errors = py.import("cachette_gpu._errors")?;
    let kind = |name: &str| Ok::<_, PyErr>(errors.getattr(name)?.cast_into::<PyType>()?.unbind());
    let kinds = Kinds {
        error: kind("Error")?,
        out_of_memory: kind("OutOfMemoryError")?,
        config: kind("ConfigError")?,
        history: kind("HistoryError")?,
        pool: kind("PoolError")?,
    };
    // A second import of the module keeps the exceptions of the first.
    let _ = KINDS.set(py, kinds);
    Ok(())
}

/// An exception of the package; a `RuntimeError` where they are not imported.
fn raised(kind: fn(&Kinds) -> &Py<PyType>, arguments: impl PyErrArguments + 'static) -> PyErr {
    let made = Python::try_attach(|py| match KINDS.get(py) {
        Some(kinds) => PyErr::from_type(kind(kinds).bind(py).clone(), arguments),
        None => PyRuntimeError::new_err(arguments),
    });
    made.unwrap_or_else(|| PyRuntimeError::new_err("the interpreter has ended"))
}

/// `cachette_gpu.Error` with a text.
pub(crate) fn error(text: impl Into<String>) -> PyErr {
    raised(|kinds| &kinds.error, text.into())
}

/// Converts an allocator's error to an exception.
pub(crate) fn of_allocator(why: Error) -> PyErr {
    let text = why.to_string();
    match why {
        Error::OutOfMemory(report) => {
            let figures = Figures::without_holders(&report);
            raised(|kinds| &kinds.out_of_memory, (text, figures, Holders(report)))
        }
        Error::TooLarge { bytes: requested } | Error::OutOfPinnedMemory { requested, .. } => {
            let figures = Figures::of_request(requested, text.clone());
            raised(|kinds| &kinds.out_of_memory, (text, figures))
        }
        Error::InvalidFraction(_) | Error::Growable(_) => PyValueError::new_err(text),
        Error::Pool { .. } | Error::PoolCallback { .. } => of_pool(text),
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

/// The exception for a pool in the wrong state.
pub(crate) fn of_pool(text: impl Into<String>) -> PyErr {
    raised(|kinds| &kinds.pool, text.into())
}

/// The exception for an invalid configuration.
pub(crate) fn of_config(why: &ConfigError) -> PyErr {
    raised(|kinds| &kinds.config, why.to_string())
}

/// The exception for invalid history options.
pub(crate) fn of_history(text: impl Into<String>) -> PyErr {
    raised(|kinds| &kinds.history, text.into())
}
