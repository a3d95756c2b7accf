//! Histories, snapshots and reports of the plug-in for PyTorch, over all its devices.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cachette::PoolId;
use cachette::snapshot::{Snapshot, SnapshotOptions};
use pyo3::prelude::*;

use crate::history::{self, Actions, Asked};
use crate::plugin::allocator;
use crate::report::{Figures, FrameEntry};
use crate::sleep::{self, SleptEntry};
use crate::{calls, metrics, snapshot};

/// Starts to record a history on all current and future devices; see `Allocator.record_memory_history`.
#[pyfunction]
pub(crate) fn record_history(
    enabled: Option<&str>,
    context: Option<&str>,
    stacks: &str,
    max_entries: u64,
    clear_history: bool,
    skip_actions: Actions,
) -> PyResult<()> {
    let asked = Asked { enabled, context, stacks, max_entries, clear_history, skip_actions };
    cachette_process::record_history(asked.options()?);
    Ok(())
}

/// Whether a history is recorded.
#[pyfunction]
pub(crate) fn is_history_enabled() -> bool {
    cachette_process::records_history()
}

/// A snapshot of one device, of all, or of one pool, with PyTorch's keys.
#[pyfunction]
#[pyo3(name = "snapshot", signature = (device=None, pool=None, traces=true))]
pub(crate) fn take_snapshot(
    py: Python<'_>,
    device: Option<u32>,
    pool: Option<(u64, u64)>,
    traces: bool,
) -> PyResult<Bound<'_, PyAny>> {
    let taken = calls::detached(py, || all(device, pool, traces))?;
    snapshot::to_python(py, &taken)
}

/// Writes a snapshot of all devices to a file that ends in `.pickle` or `.json`.
#[pyfunction]
pub(crate) fn dump_snapshot(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    let taken = calls::detached(py, || all(None, None, true))?;
    snapshot::dump(py, &taken, path)
}

fn all(device: Option<u32>, pool: Option<(u64, u64)>, traces: bool) -> Snapshot {
    let mut options = SnapshotOptions::new().traces(traces);
    if let Some((capture, user)) = pool {
        options = options.pool(PoolId { capture, user });
    }
    cachette_process::snapshot(device, options)
}

/// The stack of the allocation at `address`, on any device; `None` if the history has none.
#[pyfunction]
pub(crate) fn allocation_traceback(py: Python<'_>, address: u64) -> Option<Vec<FrameEntry>> {
    let stack = py.detach(|| cachette_process::opened().find_map(|(_, allocator)| allocator.allocation_stack(address)));
    stack.map(|stack| history::frames(&stack))
}

/// Records an event that adds metadata to the memory in use at `address`. Memory of others is ignored.
#[pyfunction]
pub(crate) fn annotate_memory(py: Python<'_>, address: u64, text: &str) {
    py.detach(|| cachette_process::opened().any(|(_, allocator)| allocator.annotate(address, text).is_ok()));
}

/// The statistics of a device in Prometheus' text format.
#[pyfunction(name = "metrics")]
pub(crate) fn metrics_text(device: u32, labels: BTreeMap<String, String>) -> PyResult<String> {
    metrics::text(allocator(device)?, labels)
}

/// The last request that ran out of memory, on any device and thread.
#[pyfunction]
pub(crate) fn last_out_of_memory() -> Option<Figures> {
    cachette_process::last_out_of_memory().as_deref().map(Figures::of)
}

/// The numbers of the devices that were used so far.
#[pyfunction]
pub(crate) fn devices() -> Vec<u32> {
    cachette_process::opened().map(|(number, _)| number).collect()
}

/// Puts every pool with a tag to sleep, on every device.
#[pyfunction(name = "sleep")]
pub(crate) fn sleep_tagged(py: Python<'_>, tag: &str, keep: bool) -> PyResult<SleptEntry> {
    let allocators: Vec<_> = cachette_process::opened().map(|(_, it)| it).collect();
    sleep::sleep_tagged(py, &allocators, tag, keep)
}

/// Wakes every pool with a tag, on every device; returns the bytes of their memory.
#[pyfunction(name = "wake")]
pub(crate) fn wake_tagged(py: Python<'_>, tag: &str) -> PyResult<u64> {
    let allocators: Vec<_> = cachette_process::opened().map(|(_, it)| it).collect();
    sleep::wake_tagged(py, &allocators, tag)
}

/// Frees the host memory of pools that are awake again, on every device.
#[pyfunction]
pub(crate) fn release_contents(py: Python<'_>) -> u64 {
    py.detach(|| cachette_process::opened().map(|(_, it)| it.release_contents()).sum())
}
