//! The allocator of one device.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use cachette::addresses::Addresses;
use cachette::evict::Priority;
use cachette::hal::Device;
use cachette::snapshot::SnapshotOptions;
use cachette::{Allocator, Backends, PoolId, PoolOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::allocation::PyAllocation;
use crate::growable::PyGrowable;
use crate::history::{Actions, Asked};
use crate::pinned::PyPinned;
use crate::pool::PyPool;
use crate::report::{Figures, FrameEntry};
use crate::sleep::{self, SleptEntry};
use crate::stream::{Named, PyStream};
use crate::{calls, config, error, history, metrics, pool, snapshot, source, stats};

/// A caching allocator for one device, such as `"cuda:0"`, `"hip:1"` or `"host"`.
///
/// `config` is a text such as `"expandable_segments:False"`; without one, it is read from the environment.
#[pyclass(module = "cachette_gpu", name = "Allocator", frozen)]
pub(crate) struct PyAllocator {
    device: String,
    inner: Allocator,
}

#[pymethods]
impl PyAllocator {
    #[new]
    #[pyo3(signature = (device="host", config=None))]
    fn new(py: Python<'_>, device: &str, config: Option<&str>) -> PyResult<Self> {
        let config = config::read(config)?;
        let opened = py.detach(|| Backends::open(device));
        let opened = opened.map_err(|why| error::error(why.to_string()))?;
        let inner = Allocator::with_config(opened, &config);
        inner.reclaim_by_default();
        cachette_process::log(&inner);
        Ok(Self { device: device.to_owned(), inner })
    }

    /// The allocator of a device that PyTorch, CuPy and other libraries of this process share.
    ///
    /// If none of them has started it, it starts on the driver that the process has loaded.
    #[staticmethod]
    #[pyo3(signature = (device=0))]
    fn shared(py: Python<'_>, device: u32) -> PyResult<Self> {
        let shared = py.detach(|| cachette_process::allocator(device)).map_err(error::of_process)?;
        let backend = cachette_process::backend().unwrap_or_default();
        Ok(Self { device: format!("{backend}:{device}"), inner: shared.clone() })
    }

    /// The device name that was passed in.
    #[getter]
    fn device(&self) -> &str {
        &self.device
    }

    /// The name of the device.
    #[getter]
    fn device_name(&self) -> &str {
        &self.inner.device_info().name
    }

    /// Allocates `size` bytes for work in `stream`: a `Stream`, the driver's handle, or the default stream.
    ///
    /// A handle is a number such as `torch.cuda.Stream.cuda_stream`, not an index. The stream must stay alive until the
    /// allocator and the memory are gone.
    #[pyo3(signature = (size, stream=None))]
    fn allocate(&self, py: Python<'_>, size: u64, stream: Option<Named<'_>>) -> PyResult<PyAllocation> {
        let stream = Named::open(stream, &self.inner)?;
        let allocation = calls::detached(py, || self.inner.allocate(size, &stream))?.map_err(error::of_allocator)?;
        Ok(PyAllocation::new(self.inner.clone(), allocation))
    }

    /// Creates a stream of the device. One that was dropped is returned again, once it is idle and its memory is free.
    fn create_stream(&self) -> PyResult<PyStream> {
        let stream = self.inner.create_stream();
        Ok(PyStream { inner: stream.map_err(error::of_allocator)? })
    }

    /// Reserves addresses for up to `size` bytes, without memory. They may be more than the device has.
    ///
    /// Memory comes and goes in the order of `stream`, by `commit` and `decommit`.
    #[pyo3(signature = (size, stream=None))]
    fn allocate_growable(&self, py: Python<'_>, size: u64, stream: Option<Named<'_>>) -> PyResult<PyGrowable> {
        PyGrowable::reserve(py, &self.inner, stream, |stream| self.inner.allocate_growable(size, stream))
    }

    /// Creates a pool: a private set of segments.
    ///
    /// `source` names the library that its segments come from, if not the device: `"nccl"`, `"rccl"`, `"nvshmem"` or
    /// `"rocshmem"`. With `no_split` every allocation has its own segment; with `use_on_oom` other requests may use its
    /// free memory before they fail. Pools with the same `tag` sleep and wake together.
    ///
    /// With a `priority`, requests may evict the pool before they fail, the lowest priority first; `make_resident`
    /// keeps it. `reload(pool)` writes contents again that an eviction dropped; without it they are kept. With
    /// `registered`, the memory behind an address never changes. `before_sleep(pool)` may refuse by an exception.
    #[pyo3(signature = (source=None, *, no_split=false, use_on_oom=false, tag="", priority=None, registered=false,
                        reload=None, before_sleep=None))]
    #[expect(clippy::too_many_arguments, reason = "each is an option that Python names")]
    fn create_pool(
        &self,
        source: Option<&str>,
        no_split: bool,
        use_on_oom: bool,
        tag: &str,
        priority: Option<u32>,
        registered: bool,
        reload: Option<Py<PyAny>>,
        before_sleep: Option<Py<PyAny>>,
    ) -> PyResult<PyPool> {
        let mut options = PoolOptions::new().id(cachette_torch::new_pool_id());
        options = options.no_split(no_split).use_on_oom(use_on_oom).tag(tag).registered(registered);
        if let Some(name) = source {
            options = options.source(source::find(name, self.inner.device_info())?);
        }
        if reload.is_some() && priority.is_none() {
            return Err(PyValueError::new_err("`reload` is for evictable pools; pass a `priority` too"));
        }
        if let Some(priority) = priority {
            options = options.evictable(Priority(priority));
        }
        if let Some(reload) = reload {
            options = options.reload(pool::callback(reload));
        }
        if let Some(agree) = before_sleep {
            options = options.before_sleep(pool::callback(agree));
        }
        PyPool::of(self.inner.create_pool_with(options))
    }

    /// Adds a user to a pool, by its identifier, such as that of `torch.cuda.graph_pool_handle()`.
    fn open_pool(&self, id: (u64, u64)) -> PyResult<PyPool> {
        let (capture, user) = id;
        PyPool::of(self.inner.open_pool(PoolId { capture, user }))
    }

    /// Creates a pool with memory at the addresses of a file, and the blocks that were allocated, in order of address.
    ///
    /// All memory belongs to `stream`, and its contents are undefined. After an error nothing has changed. Call it before
    /// anything else allocates on the device: an error names what has an address.
    #[pyo3(signature = (path, stream=None))]
    fn restore_addresses(
        &self,
        py: Python<'_>,
        path: PathBuf,
        stream: Option<Named<'_>>,
    ) -> PyResult<(PyPool, Vec<PyAllocation>)> {
        let stream = Named::open(stream, &self.inner)?;
        let restore = || self.inner.restore_addresses(&Addresses::read_from(path)?, &stream);
        let (pool, blocks) = calls::detached(py, restore)?.map_err(error::of_allocator)?;
        let blocks = blocks.into_iter().map(|block| PyAllocation::new(self.inner.clone(), block));
        Ok((PyPool::of(Ok(pool))?, blocks.collect()))
    }

    /// Evicts pools without guards until they have released `size` bytes, or none is left. Returns the released bytes.
    fn evict(&self, py: Python<'_>, size: u64) -> PyResult<u64> {
        calls::detached(py, || self.inner.evict(size))?.map_err(error::of_allocator)
    }

    /// The bytes of evictable pools that are awake and have no guard.
    #[getter]
    fn evictable_bytes(&self) -> u64 {
        self.inner.evictable_bytes()
    }

    /// Whether the memory behind an address never changes while it is allocated or cached, so that it may be registered.
    fn is_stable(&self, address: u64) -> bool {
        self.inner.is_stable(address)
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

    /// Bytes that callers hold, rounded up.
    #[getter]
    fn allocated_bytes(&self) -> u64 {
        self.inner.allocated_bytes()
    }

    /// Bytes reserved from the device.
    #[getter]
    fn reserved_bytes(&self) -> u64 {
        self.inner.reserved_bytes()
    }

    /// The device's free and total memory, in bytes.
    fn memory_info(&self) -> PyResult<(u64, u64)> {
        let info = self.inner.device().memory_info();
        let info = info.map_err(error::of_device)?;
        Ok((info.free, info.total))
    }

    /// Who holds memory of the device: `by_label`, `by_pool`, `cached` and `outside`, in bytes.
    fn memory_holders<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let held = py.detach(|| self.inner.memory_holders());
        let dict = PyDict::new(py);
        dict.set_item("by_label", held.by_label.into_iter().collect::<BTreeMap<_, _>>())?;
        let by_pool = held.by_pool.into_iter().map(|(id, tag, bytes)| ((id.capture, id.user), tag, bytes));
        dict.set_item("by_pool", by_pool.collect::<Vec<_>>())?;
        dict.set_item("cached", held.cached)?;
        dict.set_item("outside", held.outside)?;
        Ok(dict)
    }

    /// Resets every peak to the current value.
    fn reset_peak_memory_stats(&self) {
        self.inner.reset_peaks();
    }

    /// Resets every sum and count to zero.
    fn reset_accumulated_memory_stats(&self) {
        self.inner.reset_totals();
    }

    /// Releases unused memory to the device, and returns the number of bytes.
    fn empty_cache(&self, py: Python<'_>) -> PyResult<u64> {
        calls::detached(py, || self.inner.empty_cache())?.map_err(error::of_allocator)
    }

    /// Limits the allocator to a fraction of the device's memory; 1 removes the limit.
    fn set_memory_fraction(&self, fraction: f64) -> PyResult<()> {
        let set = self.inner.set_memory_fraction(fraction);
        set.map_err(error::of_allocator)
    }

    /// The limit as a fraction of the device's memory; 1 without a limit.
    fn get_memory_fraction(&self) -> f64 {
        self.inner.memory_fraction()
    }

    /// The current configuration: a text with the settings that differ from the default.
    #[getter]
    fn config(&self) -> String {
        self.inner.config().to_string()
    }

    /// Replaces the configuration.
    fn set_config(&self, config: &str) -> PyResult<()> {
        self.inner.set_config(&config::read(Some(config))?);
        Ok(())
    }

    /// Registers a callback for out-of-memory errors; it gets a dictionary of the figures.
    ///
    /// An exception in it goes to `sys.unraisablehook`; an interrupt or exit is raised by the failed call. The allocator
    /// keeps the callback, and the garbage collector does not see that. So a callback that refers to the allocator, or
    /// to its memory, keeps both for the rest of the process; let it refer to them by `weakref`.
    fn on_out_of_memory(&self, observer: Py<PyAny>) {
        let observer = Arc::new(observer);
        self.inner.on_out_of_memory(move |report| calls::call_back(&observer, (Figures::of(report),)));
    }

    /// Puts every pool with this tag to sleep: releases its memory to the device, and keeps its addresses.
    #[pyo3(signature = (tag, *, keep=true))]
    fn sleep(&self, py: Python<'_>, tag: &str, keep: bool) -> PyResult<SleptEntry> {
        sleep::sleep_tagged(py, &[&self.inner], tag, keep)
    }

    /// Wakes every pool with this tag; returns the bytes of their memory.
    fn wake(&self, py: Python<'_>, tag: &str) -> PyResult<u64> {
        sleep::wake_tagged(py, &[&self.inner], tag)
    }

    /// Frees the host memory of pools that are awake again; returns its bytes.
    fn release_contents(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.inner.release_contents())
    }

    /// Pinned host memory, which the device copies from and to asynchronously.
    fn pinned(&self) -> PyPinned {
        PyPinned { allocator: self.inner.clone() }
    }

    /// The statistics in Prometheus' text format, with `labels` besides the device.
    #[pyo3(signature = (labels=None))]
    fn metrics(&self, labels: Option<BTreeMap<String, String>>) -> PyResult<String> {
        metrics::text(&self.inner, labels.unwrap_or_default())
    }

    /// Starts to record a history, with the parameters of `torch.cuda.memory._record_memory_history`.
    ///
    /// `enabled` is `"all"`, `"state"` for live memory only, or `None` to stop. `context` selects what has a stack:
    /// `None`, `"state"`, `"alloc"` or `"all"`. `stacks` is `"python"`, or `"all"` for native frames too.
    #[pyo3(signature = (enabled=Some("all"), context=Some("all"), stacks="all", max_entries=100_000,
                        clear_history=false, skip_actions=None),
           text_signature = "($self, enabled='all', context='all', stacks='all', max_entries=100000, \
                            clear_history=False, skip_actions=None)")]
    fn record_memory_history(
        &self,
        enabled: Option<&str>,
        context: Option<&str>,
        stacks: &str,
        max_entries: u64,
        clear_history: bool,
        skip_actions: Option<Actions>,
    ) -> PyResult<()> {
        let skip_actions = skip_actions.unwrap_or_default();
        let asked = Asked { enabled, context, stacks, max_entries, clear_history, skip_actions };
        history::switch(&self.inner, asked.options()?);
        Ok(())
    }

    /// Whether a history is recorded.
    fn is_history_enabled(&self) -> bool {
        self.inner.records_history()
    }

    /// A snapshot, with PyTorch's keys.
    #[pyo3(signature = (include_traces=true))]
    fn snapshot<'py>(&self, py: Python<'py>, include_traces: bool) -> PyResult<Bound<'py, PyAny>> {
        let options = SnapshotOptions::new().traces(include_traces);
        let taken = calls::detached(py, || self.inner.snapshot_with(options))?;
        snapshot::to_python(py, &taken)
    }

    /// Writes a snapshot to a file that ends in `.pickle`, for PyTorch's memory viewer, or in `.json`.
    fn dump_snapshot(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let taken = calls::detached(py, || self.inner.snapshot())?;
        snapshot::dump(py, &taken, path)
    }

    /// The stack of the allocation at `address`; `None` if the history has none.
    fn allocation_traceback(&self, py: Python<'_>, address: u64) -> Option<Vec<FrameEntry>> {
        let stack = py.detach(|| self.inner.allocation_stack(address));
        stack.map(|stack| history::frames(&stack))
    }

    fn __repr__(&self) -> String {
        format!("<cachette_gpu.Allocator of {}>", self.device)
    }
}
