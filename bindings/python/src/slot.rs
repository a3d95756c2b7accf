//! Memory for PyTorch's own pools.

use cachette_torch::{Slot, SlotOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{config, error, source, stats};

/// An allocation and a free function for PyTorch's `MemPool`, with a cache.
#[pyclass(module = "cachette._native", name = "Slot", frozen)]
pub(crate) struct PySlot {
    inner: Slot,
}

#[pymethods]
impl PySlot {
    #[new]
    #[pyo3(signature = (source=None, config=None, no_split=false))]
    fn new(source: Option<&str>, config: Option<&str>, no_split: bool) -> PyResult<Self> {
        let options =
            SlotOptions { config: config::read(config)?, source: source.map(source::named).transpose()?, no_split };
        // SAFETY: 1. the documentation requires of the caller that NVSHMEM and rocSHMEM are initialised.
        let slot = unsafe { Slot::create(options) };
        Ok(Self { inner: slot.map_err(|why| error::error(why.to_string()))? })
    }

    /// The address of the function that allocates.
    #[getter]
    fn alloc_address(&self) -> usize {
        self.inner.alloc_address()
    }

    /// The address of the function that frees.
    #[getter]
    fn free_address(&self) -> usize {
        self.inner.free_address()
    }

    /// The statistics of a device: `allocations`, `allocated_bytes`, `segments`, `reserved_bytes`.
    fn stats<'py>(&self, py: Python<'py>, device: u32) -> PyResult<Bound<'py, PyDict>> {
        stats::of_pool(py, self.inner.stats(device).as_ref())
    }
}
