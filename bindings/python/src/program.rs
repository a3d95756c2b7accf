//! The program `cachette`, for the command that comes with the package.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the program with these arguments, of which the first is its name; returns the exit status.
///
/// Signals keep their handlers: `cachette_gpu.__main__` sets those of an ordinary program first.
#[pyfunction]
pub(crate) fn run_program(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| cachette_cli::main(arguments))
}
