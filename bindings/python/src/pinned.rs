//! Pinned host memory.

use std::sync::Arc;

use cachette::hal::{DevicePtr, Guarded};
use cachette::pinned::TimeStat;
use cachette::{Allocator, PinnedAllocation, PinnedStats};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::stream::Named;
use crate::{error, stats};

/// The pinned host memory of an allocator: `Allocator.pinned()`.
#[pyclass(module = "cachette_gpu", name = "Pinned", frozen)]
pub(crate) struct PyPinned {
    pub(crate) allocator: Allocator,
}

#[pymethods]
impl PyPinned {
    /// Allocates `size` bytes, rounded up to 512 bytes, or above 1 MiB to 4 KiB.
    fn allocate(&self, py: Python<'_>, size: u64) -> PyResult<PyPinnedAllocation> {
        let allocated = py.detach(|| self.allocator.pinned().allocate(size));
        Ok(PyPinnedAllocation {
            allocator: self.allocator.clone(),
            held: Arc::new(Guarded::new(Held { allocation: Some(allocated.map_err(error::of_allocator)?), views: 0 })),
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
#[pyclass(module = "cachette_gpu", name = "PinnedAllocation", frozen)]
pub(crate) struct PyPinnedAllocation {
    allocator: Allocator,
    held: Arc<Guarded<Held>>,
}

/// No Python code runs while it is locked.
struct Held {
    /// `None` after the free.
    allocation: Option<PinnedAllocation>,
    /// Views that exist or are being made; the memory is not freed while there are any.
    views: usize,
}

/// Counts one view of pinned memory, and keeps the memory: the `_owner` of the view.
#[pyclass(module = "cachette_gpu._native", frozen)]
struct ViewOwner(Arc<Guarded<Held>>);

impl Drop for ViewOwner {
    fn drop(&mut self) {
        self.0.lock().views -= 1;
    }
}

impl PyPinnedAllocation {
    /// Calls `question` with the allocation, unless it was freed.
    fn ask<T>(&self, question: impl FnOnce(&PinnedAllocation) -> T) -> PyResult<T> {
        let answer = self.held.lock().allocation.as_ref().map(question);
        answer.ok_or_else(freed)
    }

    /// Counts a view from now on. Returns the address and the bytes that it shows.
    fn begin_view(&self) -> PyResult<(ViewOwner, usize, u64)> {
        let shown = {
            let mut held = self.held.lock();
            let shown = held.allocation.as_ref().map(|it| (it.ptr().addr().get(), it.requested()));
            held.views += usize::from(shown.is_some());
            shown
        };
        let (address, bytes) = shown.ok_or_else(freed)?;
        Ok((ViewOwner(Arc::clone(&self.held)), address, bytes))
    }
}

fn freed() -> PyErr {
    error::error("this memory was already freed")
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

    /// Usable bytes: the requested bytes, rounded up to 512 bytes, or above 1 MiB to 4 KiB.
    #[getter]
    fn bytes(&self) -> PyResult<u64> {
        self.ask(PinnedAllocation::bytes)
    }

    /// The requested bytes.
    #[getter]
    fn requested(&self) -> PyResult<u64> {
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
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // The code below may run other threads, and code of the program, which may free the memory.
        let (owner, address, bytes) = self.begin_view()?;
        // The stable ABI has no buffers before Python 3.11, so the view is of a `ctypes` array.
        let kind = py.import("ctypes")?.getattr("c_ubyte")?.mul(bytes)?;
        let shown = match bytes {
            0 => kind.call0()?,
            _ => kind.call_method1("from_address", (address,))?,
        };
        shown.setattr("_owner", owner)?;
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
        let text = "a view of this memory is still there; release it before the memory is freed";
        let mut held = self.held.lock();
        if held.views > 0 {
            drop(held);
            return Err(error::error(text));
        }
        let taken = held.allocation.take();
        drop(held);
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
            format!("<cachette_gpu.PinnedAllocation of {bytes} bytes at {address:#x}>")
        })
        .unwrap_or_else(|_| "<cachette_gpu.PinnedAllocation, freed>".to_owned())
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
    for (name, stat) in counts {
        for (figure, value) in stats::figures(&stat) {
            dict.set_item(format!("{name}.{figure}"), value)?;
        }
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
