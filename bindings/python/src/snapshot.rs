//! Snapshots, as Python takes them.

use std::path::PathBuf;

use cachette::snapshot::{self, Snapshot};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error;
use crate::places::Noted;

/// Takes a snapshot without the interpreter's lock; it is an event of the history itself, and has a place.
pub(crate) fn take(py: Python<'_>, take: impl FnOnce() -> Snapshot + Send) -> Snapshot {
    let _noted = Noted::here();
    py.detach(take)
}

/// A snapshot as dictionaries and lists, with PyTorch's keys: the pickle that a file would hold, read by Python.
pub(crate) fn to_python<'py>(py: Python<'py>, snapshot: &Snapshot) -> PyResult<Bound<'py, PyAny>> {
    let pickled = py.detach(|| {
        let mut pickled = Vec::new();
        snapshot.write_pickle(&mut pickled).map(|()| pickled)
    });
    let pickled = pickled.map_err(|why| error::error(why.to_string()))?;
    let loads = py.import("pickle")?.getattr("loads")?;
    loads.call1((PyBytes::new(py, &pickled),))
}

/// Writes a snapshot in the format that the ending of the name says.
pub(crate) fn dump(py: Python<'_>, snapshot: &Snapshot, path: PathBuf) -> PyResult<()> {
    py.detach(move || snapshot::save(snapshot, &path)).map_err(|why| error::error(why.to_string()))
}
