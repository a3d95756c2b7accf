//! Configurations as text.

use std::ffi::CString;

use cachette::Config;
use cachette::config::ConfigError;
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;

use crate::error;

/// Parses the configuration `text`, or reads the environment if it is `None`.
///
/// PyTorch's variables may contain keys that Cachette lacks; Python warns about each.
pub(crate) fn read(text: Option<&str>) -> PyResult<Config> {
    if let Some(text) = text {
        return text.parse().map_err(|why| error::of_config(&why));
    }
    let (config, left_out) = Config::from_env_known().map_err(|why| error::of_config(&why))?;
    warn(&left_out)?;
    Ok(config)
}

/// Warns about keys of PyTorch that Cachette lacks.
pub(crate) fn warn(left_out: &[ConfigError]) -> PyResult<()> {
    Python::attach(|py| {
        for why in left_out {
            let text = format!("Cachette goes on without this setting of PyTorch: {why}");
            let text = CString::new(text.replace('\0', " "))?;
            // The caller of the function that Python called.
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 2)?;
        }
        Ok(())
    })
}

/// Reads a configuration and writes it in its shortest form.
#[pyfunction]
#[pyo3(signature = (text=None))]
pub(crate) fn normalise_config(text: Option<&str>) -> PyResult<String> {
    Ok(read(text)?.to_string())
}
