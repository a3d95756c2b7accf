//! Pinned host memory.

use std::sync::{Mutex, PoisonError};

use cachette::hal::DevicePtr;
use cachette::pinned::TimeStat;
use cachette::{Allocator, PinnedAllocation, PinnedStats, Stat};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyWeakrefReference};

use crate::error;
use crate::stream::Named;

/// The pinned host memory of an allocator: `Allocator.pinned()`.
#[pyclass(module = "cachette", name = "Pinned", frozen)]
pub(crate) struct PyPinned {
    pub(crate) allocator: Allocator,
}

#[pymethods]
impl PyPinned {
    /// Allocates `bytes` bytes, rounded up to a power of two.
    fn allocate(&self, py: Python<'_>, bytes: usize) -> PyResult<PyPinnedAllocation> {
        let allocated = py.detach(|| self.allocator.pinned().allocate(bytes));
        Ok(PyPinnedAllocation {
            allocator: self.allocator.clone(),
            inner: Mutex::new(Held { allocation: Some(allocated.map_err(error::of_allocator)?), view: None }),
        })
    }

    /// The statistics, with the keys of `torch.cuda.host_memory_stats()`.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        figures(py, &self.allocator.pinned().stats())
    }

    /// Releases every free block to the driver, which waits for the whole device. Returns the number of bytes.
    fn empty_cache(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.allocator.pinned().empty_cache()).map_err(error::of_allocator)
    }

    /// Resets every peak to the current value.
    fn reset_peak_stats(&self) {
        self.allocator.pinned().reset_peak_stats();
    }

    /// Resets every sum and count to zero.
    fn reset_accumulated_stats(&self) {
        self.allocator.pinned().reset_accumulated_stats();
    }
}

/// Pinned host memory; freed by `free()`, at the end of a `with` block, or with the object.
#[pyclass(module = "cachette", name = "PinnedAllocation", frozen)]
pub(crate) struct PyPinnedAllocation {
    allocator: Allocator,
    inner: Mutex<Held>,
}

struct Held {
    /// `None` after the free.
    allocation: Option<PinnedAllocation>,
    /// The Python view of the memory. It keeps this object alive while the view exists.
    view: Option<Py<PyWeakrefReference>>,
}

impl PyPinnedAllocation {
    /// Calls `question` with the allocation, unless it was freed.
    fn ask<T>(&self, question: impl FnOnce(&PinnedAllocation) -> T) -> PyResult<T> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let allocation = inner.allocation.as_ref();
        allocation.map(question).ok_or_else(|| error::error("this memory was freed; allocate anew"))
    }

    /// Returns the Python view of the memory, if it still exists.
    fn shown<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let view = inner.view.as_ref()?.bind(py);
        view.upgrade()
    }
}

#[pymethods]
impl PyPinnedAllocation {
    /// The host address of the first byte; 0 for an allocation of no bytes.
    #[getter]
    fn address(&self) -> PyResult<usize> {
        self.ask(|it| if it.is_empty() { 0 } else { it.ptr().addr().get() })
    }

    /// The device address of the first byte; 0 for an allocation of no bytes.
    #[getter]
    fn device_address(&self) -> PyResult<u64> {
        let address = self.ask(PinnedAllocation::device_address)?;
        let address = address.map_err(error::of_allocator)?;
        Ok(address.map_or(0, DevicePtr::address))
    }

    /// Usable bytes: the requested bytes, rounded up to a power of two.
    #[getter]
    fn bytes(&self) -> PyResult<usize> {
        self.ask(PinnedAllocation::bytes)
    }

    /// The requested bytes.
    #[getter]
    fn requested(&self) -> PyResult<usize> {
        self.ask(PinnedAllocation::requested)
    }

    /// Whether it was freed.
    #[getter]
    fn is_freed(&self) -> bool {
        self.ask(|_| ()).is_err()
    }

    /// A view of the requested bytes, for use while the device does not access them.
    ///
    /// The memory cannot be freed while the view exists.
    fn view<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let (address, bytes) = (this.get().address()?, this.get().requested()?);
        let shown = match this.get().shown(py) {
            Some(shown) => shown,
            None => this.get().show(this, address, bytes)?,
        };
        let view = py.import("builtins")?.getattr("memoryview")?.call1((shown,))?;
        view.call_method1("cast", ("B",))
    }

    /// Records that work in `stream` uses the memory. After its free, it is not reused before that work has finished.
    fn record_stream(&self, stream: Named<'_>) -> PyResult<()> {
        let stream = Named::open(Some(stream), &self.allocator)?;
        self.ask(|allocation| allocation.record_stream(&stream))
    }

    /// Frees the memory; a second call does nothing.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        if self.shown(py).is_some() {
            return Err(error::error("a view of this memory is still there; release it before the memory is freed"));
        }
        let taken = self.inner.lock().unwrap_or_else(PoisonError::into_inner).allocation.take();
        py.detach(|| drop(taken));
        Ok(())
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.free(py)
    }

    fn __repr__(&self) -> String {
        self.ask(|it| {
            let (bytes, address) = (it.requested(), it.ptr().addr());
            format!("<cachette.PinnedAllocation of {bytes} bytes at {address:#x}>")
        })
        .unwrap_or_else(|_| "<cachette.PinnedAllocation, freed>".to_owned())
    }
}

impl PyPinnedAllocation {
    /// Creates the Python view of the memory.
    ///
    /// The stable ABI has no buffers before Python 3.11, so the view is a `ctypes` array that refers to this object.
    fn show<'py>(&self, this: &Bound<'py, Self>, address: usize, bytes: usize) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let kind = py.import("ctypes")?.getattr("c_ubyte")?.mul(bytes)?;
        let shown = match bytes {
            0 => kind.call0()?,
            _ => kind.call_method1("from_address", (address,))?,
        };
        shown.setattr("_owner", this)?;
        let view = PyWeakrefReference::new(&shown)?.unbind();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.view = Some(view);
        Ok(shown)
    }
}

/// The statistics in one dictionary, with PyTorch's keys.
fn figures<'py>(py: Python<'py>, stats: &PinnedStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("num_host_alloc", stats.num_host_alloc)?;
    dict.set_item("num_host_free", stats.num_host_free)?;
    let counts = [
        ("allocations", stats.allocations),
        ("allocated_bytes", stats.allocated_bytes),
        ("active_requests", stats.active_requests),
        ("active_bytes", stats.active_bytes),
    ];
    for (name, Stat { current, peak, allocated, freed, .. }) in counts {
        dict.set_item(format!("{name}.current"), current)?;
        dict.set_item(format!("{name}.peak"), peak)?;
        dict.set_item(format!("{name}.allocated"), allocated)?;
        dict.set_item(format!("{name}.freed"), freed)?;
    }
    let times = [("host_alloc_time", stats.host_alloc_time), ("host_free_time", stats.host_free_time)];
    for (name, time) in times {
        let TimeStat { total, max, min, count } = time;
        let figures = [("total", total), ("max", max), ("min", min), ("count", count)];
        for (figure, value) in figures.into_iter().chain([("avg", time.avg())]) {
            dict.set_item(format!("{name}.{figure}"), value)?;
        }
    }
    Ok(dict)
}
