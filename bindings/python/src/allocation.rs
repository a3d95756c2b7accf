//! Device memory that Python owns.

use std::sync::{Mutex, PoisonError};

use cachette::hal::AnyDevice;
use cachette::{Allocation, Allocator};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::code_locations::Noted;
use crate::error;
use crate::stream::Named;

/// Device memory; freed by `free()`, at the end of a `with` block, or with the object.
#[pyclass(module = "cachette", name = "Allocation", frozen)]
pub(crate) struct PyAllocation {
    allocator: Allocator<AnyDevice>,
    /// `None` after the free.
    inner: Mutex<Option<Allocation<AnyDevice>>>,
}

impl PyAllocation {
    pub(crate) const fn new(allocator: Allocator<AnyDevice>, allocation: Allocation<AnyDevice>) -> Self {
        Self { allocator, inner: Mutex::new(Some(allocation)) }
    }

    /// Calls `question` with the allocation, unless it was freed.
    fn ask<T>(&self, question: impl FnOnce(&Allocation<AnyDevice>) -> T) -> PyResult<T> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let allocation = inner.as_ref();
        allocation.map(question).ok_or_else(|| error::error("this memory was freed; allocate anew"))
    }
}

#[pymethods]
impl PyAllocation {
    /// The address of the first byte; 0 for an allocation of no bytes.
    #[getter]
    fn address(&self) -> PyResult<u64> {
        self.ask(Allocation::address)
    }

    /// Usable bytes: the requested bytes, rounded up.
    #[getter]
    fn bytes(&self) -> PyResult<u64> {
        self.ask(Allocation::bytes)
    }

    /// The requested bytes.
    #[getter]
    fn requested(&self) -> PyResult<u64> {
        self.ask(Allocation::requested)
    }

    /// Whether it was freed.
    #[getter]
    fn is_freed(&self) -> bool {
        self.ask(|_| ()).is_err()
    }

    /// Records that `stream` also uses the memory. After its free, it is not reused until the work that is then queued
    /// in `stream` has finished.
    fn record_stream(&self, stream: Named<'_>) -> PyResult<()> {
        let stream = Named::open(Some(stream), &self.allocator)?;
        self.ask(|allocation| allocation.record_stream(&stream))
    }

    /// Frees the memory; a second call does nothing.
    fn free(&self, py: Python<'_>) {
        let taken = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _noted = Noted::here();
        py.detach(|| drop(taken));
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.free(py);
    }

    fn __repr__(&self) -> String {
        self.ask(|it| format!("<cachette.Allocation of {} bytes at {:#x}>", it.requested(), it.address()))
            .unwrap_or_else(|_| "<cachette.Allocation, freed>".to_owned())
    }
}
