//! The allocator of one device.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use cachette::hal::{AnyDevice, Device};
use cachette::snapshot::SnapshotOptions;
use cachette::{Allocator, Backends, OutOfMemory};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::allocation::PyAllocation;
use crate::history::Asked;
use crate::pinned::PyPinned;
use crate::places::Noted;
use crate::pool::PyPool;
use crate::report::Figures;
use crate::sleep::{self, SleptEntry};
use crate::stream::{Named, PyStream};
use crate::{config, error, history, metrics, pool, snapshot, stats};

/// A caching allocator for one device, such as `"cuda:0"`, `"hip:1"` or `"host"`.
///
/// `config` is a text such as `"expandable_segments:True"`; without one, the environment's is read.
#[pyclass(module = "cachette", name = "Allocator", frozen)]
pub(crate) struct PyAllocator {
    device: String,
    inner: Allocator<AnyDevice>,
}

#[pymethods]
impl PyAllocator {
    #[new]
    #[pyo3(signature = (device="host", config=None))]
    fn new(py: Python<'_>, device: &str, config: Option<&str>) -> PyResult<Self> {
        let config = config::read(config)?;
        let opened = py.detach(|| Backends::open(device));
        let opened = opened.map_err(|why| error::of_open(&why))?;
        Ok(Self { device: device.to_owned(), inner: Allocator::with_config(opened, &config) })
    }

    /// The device, as it was named.
    #[getter]
    fn device(&self) -> &str {
        &self.device
    }

    /// What the device calls itself.
    #[getter]
    fn device_name(&self) -> &str {
        &self.inner.device_info().name
    }

    /// Allocates `bytes` bytes for work in `stream`: a `Stream`, the driver's handle, or the default stream.
    ///
    /// A handle is a number such as `torch.cuda.Stream.cuda_stream`, and no index. It must stay a live stream of this
    /// device until the allocator and the memory are gone.
    #[pyo3(signature = (bytes, stream=None))]
    fn allocate(&self, py: Python<'_>, bytes: u64, stream: Option<Named<'_>>) -> PyResult<PyAllocation> {
        let stream = Named::open(stream, &self.inner)?;
        let _noted = Noted::here();
        let allocation = py.detach(|| self.inner.allocate(bytes, &stream)).map_err(error::of_allocator)?;
        Ok(PyAllocation::new(self.inner.clone(), allocation))
    }

    /// Makes a stream of the device.
    fn create_stream(&self) -> PyResult<PyStream> {
        let stream = self.inner.create_stream();
        Ok(PyStream { inner: stream.map_err(error::of_allocator)? })
    }

    /// Creates a pool: a private set of segments.
    ///
    /// `source` says where its segments come from, if not from the device: `"nccl"`, `"rccl"`, `"nvshmem"` or
    /// `"rocshmem"`. With `no_split` every allocation has its own segment; with `use_on_oom` its free memory serves
    /// other requests before those fail. Pools with the same `tag` sleep and wake as one.
    #[pyo3(signature = (source=None, *, no_split=false, use_on_oom=false, tag=""))]
    fn create_pool(&self, source: Option<&str>, no_split: bool, use_on_oom: bool, tag: &str) -> PyResult<PyPool> {
        let options = pool::options(&self.inner, source)?.no_split(no_split).use_on_oom(use_on_oom).tag(tag);
        PyPool::create(&self.inner, options)
    }

    /// The statistics, with PyTorch's keys, such as `"allocated_bytes.all.current"`.
    fn memory_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats::flat(py, &self.inner.stats())
    }

    /// The statistics, in dictionaries of dictionaries with PyTorch's keys.
    fn memory_stats_as_nested_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats::nested(py, &self.inner.stats())
    }

    /// The statistics as a table.
    fn memory_summary(&self) -> String {
        self.inner.stats().to_string()
    }

    /// Bytes that callers hold now, as rounded.
    #[getter]
    fn allocated_bytes(&self) -> u64 {
        self.inner.allocated_bytes()
    }

    /// Bytes held from the device now.
    #[getter]
    fn reserved_bytes(&self) -> u64 {
        self.inner.reserved_bytes()
    }

    /// What the device has free and what it has in all, in bytes.
    fn memory_info(&self) -> PyResult<(u64, u64)> {
        let info = self.inner.device().memory_info();
        let info = info.map_err(error::of_device)?;
        Ok((info.free, info.total))
    }

    /// Makes every peak the present value.
    fn reset_peak_memory_stats(&self) {
        self.inner.reset_peaks();
    }

    /// Makes every sum and count zero.
    fn reset_accumulated_memory_stats(&self) {
        self.inner.reset_totals();
    }

    /// Gives unused memory back to the device, and says how many bytes that were.
    fn empty_cache(&self, py: Python<'_>) -> PyResult<u64> {
        let _noted = Noted::here();
        py.detach(|| self.inner.empty_cache()).map_err(error::of_allocator)
    }

    /// Bounds what the allocator may hold to a fraction of the device's memory; 1 is no bound.
    fn set_memory_fraction(&self, fraction: f64) -> PyResult<()> {
        let set = self.inner.set_memory_fraction(fraction);
        set.map_err(error::of_allocator)
    }

    /// The fraction of the device's memory that the allocator may hold; 1 without a bound.
    fn get_memory_fraction(&self) -> f64 {
        self.inner.memory_fraction()
    }

    /// The configuration as it is now: a text that names what differs from the default.
    #[getter]
    fn config(&self) -> String {
        self.inner.config().to_string()
    }

    /// Behaves as `config` says from now on.
    fn set_config(&self, config: &str) -> PyResult<()> {
        self.inner.set_config(&config::read(Some(config))?);
        Ok(())
    }

    /// Calls `observer` with a dictionary of the figures whenever a request ends in out-of-memory.
    fn on_out_of_memory(&self, observer: Py<PyAny>) {
        let observer = Arc::new(observer);
        self.inner.on_out_of_memory(move |report| {
            tell(&observer, report);
        });
    }

    /// Lets every pool with this tag sleep: its memory goes back to the device, and its addresses stay.
    #[pyo3(signature = (tag, *, keep=true))]
    fn sleep(&self, py: Python<'_>, tag: &str, keep: bool) -> PyResult<SleptEntry> {
        sleep::sleep_tagged(py, &[&self.inner], tag, keep)
    }

    /// Wakes every pool with this tag; the bytes of their memory.
    fn wake(&self, py: Python<'_>, tag: &str) -> PyResult<u64> {
        sleep::wake_tagged(py, &[&self.inner], tag)
    }

    /// Gives host memory back that kept the contents of pools which are awake now; its bytes.
    fn release_contents(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.inner.release_contents())
    }

    /// Pinned host memory, which the device copies from and to asynchronously.
    fn pinned(&self) -> PyPinned {
        PyPinned { allocator: self.inner.clone() }
    }

    /// The figures in the text form that Prometheus reads, with `labels` beside the device.
    #[pyo3(signature = (labels=BTreeMap::new()))]
    fn metrics(&self, labels: BTreeMap<String, String>) -> PyResult<String> {
        metrics::text(&self.inner, labels)
    }

    /// Records what happens to memory from now on; `torch.cuda.memory._record_memory_history` has the same words.
    ///
    /// `enabled` is `"all"`, `"state"` for what is held alone, or `None` for nothing; `context` says of what it is
    /// asked where in the program it happens: `None`, `"state"`, `"alloc"` or `"all"`; `stacks` is `"python"`, or
    /// `"all"` for native callers too.
    #[pyo3(signature = (enabled=Some("all"), context=Some("all"), stacks="all", max_entries=100_000,
                        clear_history=false, skip_actions=Vec::new()))]
    fn record_memory_history(
        &self,
        enabled: Option<&str>,
        context: Option<&str>,
        stacks: &str,
        max_entries: u64,
        clear_history: bool,
        skip_actions: Vec<String>,
    ) -> PyResult<()> {
        let asked = Asked { enabled, context, stacks, max_entries, clear_history, skip_actions };
        history::switch(&self.inner, asked.options()?);
        Ok(())
    }

    /// Whether a history is recorded.
    fn is_history_enabled(&self) -> bool {
        self.inner.records_history()
    }

    /// What the allocator holds and did, with PyTorch's keys.
    #[pyo3(signature = (include_traces=true))]
    fn snapshot<'py>(&self, py: Python<'py>, include_traces: bool) -> PyResult<Bound<'py, PyAny>> {
        let options = SnapshotOptions::new().traces(include_traces);
        let taken = snapshot::take(py, || self.inner.snapshot_with(options));
        snapshot::to_python(py, &taken)
    }

    /// Writes a snapshot to a file that ends in `.pickle`, for PyTorch's memory viewer, or in `.json`.
    fn dump_snapshot(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let taken = snapshot::take(py, || self.inner.snapshot());
        snapshot::dump(py, &taken, path)
    }

    /// Where the allocation that begins at `address` was made; `None` if the history does not know.
    fn allocation_traceback<'py>(&self, py: Python<'py>, address: u64) -> PyResult<Option<Bound<'py, PyList>>> {
        let stack = py.detach(|| self.inner.allocation_stack(address));
        stack.map(|stack| history::frames(py, &stack)).transpose()
    }

    fn __repr__(&self) -> String {
        format!("<cachette.Allocator of {}>", self.device)
    }
}

/// Calls an observer; what it raises goes to `sys.unraisablehook`, and none is called once the interpreter ends.
fn tell(observer: &Py<PyAny>, report: &OutOfMemory) {
    let _ = Python::try_attach(|py| {
        if let Err(raised) = observer.call1(py, (Figures::of(report),)) {
            raised.write_unraisable(py, Some(observer.bind(py)));
        }
    });
}
