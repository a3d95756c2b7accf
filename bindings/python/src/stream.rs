//! Streams.

use cachette::hal::StreamRef;
use cachette::{Allocator, Stream};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyInt;

use crate::error;

/// A stream of a device; freed memory can be reused in the same stream at once.
///
/// The stream is not destroyed with this object, but with the allocator and the last memory of it.
#[pyclass(module = "cachette_gpu", name = "Stream", frozen)]
pub(crate) struct PyStream {
    pub(crate) inner: Stream,
}

#[pymethods]
impl PyStream {
    /// The driver's handle, as a number.
    #[getter]
    fn handle(&self) -> usize {
        self.inner.handle().raw()
    }

    /// The version of the protocol and the driver's handle, for libraries that take streams of others.
    fn __cuda_stream__(&self) -> (u32, usize) {
        (0, self.handle())
    }

    /// Waits for the work that is queued in the stream.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.synchronize()).map_err(error::of_device)
    }

    fn __repr__(&self) -> String {
        format!("<cachette_gpu.Stream {:#x}>", self.inner.handle().raw())
    }
}

/// A stream argument: a `Stream` object, or the driver's handle.
pub(crate) enum Named<'py> {
    Ours(Bound<'py, PyStream>),
    Handle(usize),
}

impl<'py> FromPyObject<'_, 'py> for Named<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(stream) = object.cast::<PyStream>() {
            return Ok(Self::Ours(stream.to_owned()));
        }
        object.extract().map(Self::Handle).map_err(|why| {
            if object.is_instance_of::<PyInt>() {
                return why;
            }
            let given = object.get_type().name().map_or_else(|_| "another type".to_owned(), |name| name.to_string());
            let text = format!("stream must be a cachette_gpu.Stream or an int, the driver's handle, and not {given}");
            PyTypeError::new_err(text)
        })
    }
}

impl Named<'_> {
    /// Returns the stream of `allocator` for an argument; the default stream for `None`.
    pub(crate) fn open(named: Option<Self>, allocator: &Allocator) -> PyResult<Stream> {
        match named {
            None => allocator.default_stream(),
            Some(Self::Ours(stream)) => Ok(stream.get().inner.clone()),
            // SAFETY: the documentation of every call requires that the handle is a live stream of this device, until
            // the allocator and its memory are gone.
            Some(Self::Handle(handle)) => unsafe { allocator.adopt_stream(StreamRef::from_raw(handle)) },
        }
        .map_err(error::of_allocator)
    }
}
