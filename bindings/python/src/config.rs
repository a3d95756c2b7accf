//! Configurations as text.

use cachette::Config;
use pyo3::prelude::*;

use crate::error;

/// The configuration that `text` says, or the environment's where there is none.
pub(crate) fn read(text: Option<&str>) -> PyResult<Config> {
    let read = match text {
        Some(text) => text.parse(),
        None => Config::from_env(),
    };
    read.map_err(|why| error::of_config(&why))
}

/// Reads a configuration and writes it in its shortest form.
#[pyfunction]
#[pyo3(signature = (text=None))]
pub(crate) fn normalise_config(text: Option<&str>) -> PyResult<String> {
    Ok(read(text)?.to_string())
}
