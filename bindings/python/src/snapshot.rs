//! Snapshots for Python.

use std::path::PathBuf;

use cachette::snapshot::{self, Snapshot};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error;

/// A snapshot as dictionaries and lists, with PyTorch's keys, made by unpickling the file format.
pub(crate) fn to_python<'py>(py: Python<'py>, snapshot: &Snapshot) -> PyResult<Bound<'py, PyAny>> {
    let pickled = py.detach(|| {
        let mut pickled = Vec::new();
        snapshot.write_pickle(&mut pickled).map(|()| pickled)
    });
    let pickled = pickled.map_err(|why| error::error(why.to_string()))?;
    let loads = py.import("pickle")?.getattr("loads")?;
    loads.call1((PyBytes::new(py, &pickled),))
}

/// Writes a snapshot in the format of the file's extension.
pub(crate) fn dump(py: Python<'_>, snapshot: &Snapshot, path: PathBuf) -> PyResult<()> {
    py.detach(move || snapshot::save(snapshot, &path)).map_err(|why| error::error(why.to_string()))
}
