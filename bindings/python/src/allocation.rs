//! Device memory that Python owns.

use std::sync::Arc;

use cachette::hal::Guarded;
use cachette::{Allocation, Allocator};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::calls;
use crate::error;
use crate::memory::Memory;
use crate::sequence::AtMost;
use crate::stream::Named;
use crate::view::PyView;

/// Device memory; freed by `free()`, at the end of a `with` block, or with the object.
///
/// Views and consumers of DLPack keep the memory too; it is freed with the last of them.
#[pyclass(module = "cachette_gpu", name = "Allocation", frozen)]
pub(crate) struct PyAllocation {
    /// `None` after the free.
    inner: Guarded<Option<Arc<Memory>>>,
}

impl PyAllocation {
    pub(crate) fn new(allocator: Allocator, allocation: Allocation) -> Self {
        Self { inner: Guarded::new(Some(Arc::new(Memory { allocator, allocation }))) }
    }

    /// The memory, unless it was freed.
    fn memory(&self) -> PyResult<Arc<Memory>> {
        self.inner.lock().clone().ok_or_else(|| error::error("this memory was already freed"))
    }

    /// Calls `question` with the allocation, unless it was freed.
    fn ask<T>(&self, question: impl FnOnce(&Allocation) -> T) -> PyResult<T> {
        Ok(question(&self.memory()?.allocation))
    }

    fn bytes_view(&self) -> PyResult<PyView> {
        PyView::of_bytes(self.memory()?)
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
        let memory = self.memory()?;
        memory.allocation.record_stream(&Named::open(Some(stream), &memory.allocator)?);
        Ok(())
    }

    /// The memory with a type, such as `"float32"`, and a shape, for other libraries.
    fn view(&self, dtype: &str, shape: AtMost<64, i64>) -> PyResult<PyView> {
        PyView::new(self.memory()?, dtype, shape.0)
    }

    /// The address of the first byte, as Triton asks for it.
    fn data_ptr(&self) -> PyResult<u64> {
        self.address()
    }

    /// As for `View`, with the bytes as `uint8`.
    fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
        Ok(self.bytes_view()?.__dlpack_device__())
    }

    /// As for `View`, with the bytes as `uint8`.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.bytes_view()?.__dlpack__(py, stream, max_version, dl_device, copy)
    }

    /// As for `View`, with the bytes as `uint8`.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.bytes_view()?.__cuda_array_interface__(py)
    }

    /// Frees the memory; a second call does nothing.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        let taken = self.inner.lock().take();
        calls::detached(py, || drop(taken))
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.free(py)
    }

    fn __repr__(&self) -> String {
        self.ask(|it| format!("<cachette_gpu.Allocation of {} bytes at {:#x}>", it.requested(), it.address()))
            .unwrap_or_else(|_| "<cachette_gpu.Allocation, freed>".to_owned())
    }
}
