//! Streams.

use cachette::hal::{AnyDevice, StreamRef};
use cachette::{Allocator, Stream};
use pyo3::prelude::*;

use crate::error;

/// A queue of work on a device; memory that is freed serves the same stream at once.
#[pyclass(module = "cachette", name = "Stream", frozen)]
pub(crate) struct PyStream {
    pub(crate) inner: Stream<AnyDevice>,
}

#[pymethods]
impl PyStream {
    /// The driver's own handle, as a number.
    #[getter]
    fn handle(&self) -> usize {
        self.inner.handle().raw()
    }

    /// Waits until everything queued in the stream so far has finished.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.synchronize()).map_err(error::of_device)
    }

    fn __repr__(&self) -> String {
        format!("<cachette.Stream {:#x}>", self.inner.handle().raw())
    }
}

/// How a caller names a stream: an object of ours, or the driver's handle.
#[derive(FromPyObject)]
pub(crate) enum Named<'py> {
    Ours(Bound<'py, PyStream>),
    Handle(usize),
}

impl Named<'_> {
    /// The stream of `allocator` that a caller named; the default one where none was.
    pub(crate) fn open(named: Option<Self>, allocator: &Allocator<AnyDevice>) -> PyResult<Stream<AnyDevice>> {
        match named {
            None => allocator.default_stream(),
            Some(Self::Ours(stream)) => Ok(stream.get().inner.clone()),
            // SAFETY: a handle is its caller's to answer for, as the documentation of every call that takes one
            // says: a live stream of this device until the allocator and what it gave out are gone.
            Some(Self::Handle(handle)) => unsafe { allocator.adopt_stream(StreamRef::from_raw(handle)) },
        }
        .map_err(error::of_allocator)
    }
}
