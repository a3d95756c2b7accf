//! The process-wide plug-in for PyTorch.

use cachette::Allocator;
use pyo3::prelude::*;

use crate::error;

/// The functions of the plug-in, by device number.
#[pymodule]
pub(crate) mod plugin {
    use std::collections::HashSet;

    use cachette::PoolId;
    use cachette::hal::Device;
    use pyo3::prelude::*;
    use pyo3::types::PyDict;

    use super::allocator;
    #[pymodule_export]
    use crate::recording::{
        allocation_traceback, annotate_memory, devices, dump_snapshot, is_history_enabled, last_out_of_memory,
        metrics_text, record_history, release_contents, sleep_tagged, take_snapshot, wake_tagged,
    };
    use crate::stacks::PythonStacks;
    #[pymodule_export]
    use crate::torch_frames::ask_torch;
    use crate::{calls, config, error, stats};

    /// Starts the plug-in on `backend` (`"cuda"`, `"hip"` or `"host"`), once in a process.
    #[pyfunction]
    #[pyo3(signature = (backend, config=None))]
    fn start(py: Python<'_>, backend: &str, config: Option<&str>) -> PyResult<()> {
        let config = config::read(config)?;
        cachette_torch::adapter::set_stack_source(|| PythonStacks::all());
        py.detach(|| cachette_process::start(backend, &config)).map_err(|why| error::error(why.to_string()))
    }

    /// Whether the plug-in was started.
    #[pyfunction]
    fn is_started() -> bool {
        cachette_process::is_started()
    }

    /// The name of the backend; `None` before the start.
    #[pyfunction]
    fn backend() -> Option<&'static str> {
        cachette_process::backend()
    }

    /// The current configuration as a text; `None` before the start.
    #[pyfunction(name = "config")]
    fn current_config(py: Python<'_>) -> Option<String> {
        let config = py.detach(cachette_process::config);
        config.map(|config| config.to_string())
    }

    /// Applies a configuration text of PyTorch, on all current and future devices.
    #[pyfunction]
    fn update_config(py: Python<'_>, text: &str) -> PyResult<()> {
        let updated = py.detach(|| cachette_process::update_config(text));
        config::warn(&updated.map_err(error::of_process)?)
    }

    /// The functions that PyTorch calls: their names as symbols of this library, and their addresses.
    #[pyfunction]
    fn addresses(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        for (name, address) in super::addresses() {
            dict.set_item(name, address)?;
        }
        Ok(dict)
    }

    /// The statistics in PyTorch's nested form; zeros before the first allocation.
    #[pyfunction]
    fn memory_stats(py: Python<'_>, device: u32) -> PyResult<Bound<'_, PyDict>> {
        stats::nested(py, &cachette_process::stats(device as usize))
    }

    /// The statistics as a table.
    #[pyfunction]
    fn memory_summary(device: u32) -> String {
        cachette_process::stats(device as usize).to_string()
    }

    /// Resets every peak to the current value.
    #[pyfunction]
    fn reset_peaks(device: u32) {
        if let Some(allocator) = cachette_process::find(device as usize) {
            allocator.reset_peaks();
        }
    }

    /// Resets every sum and count to zero.
    #[pyfunction]
    fn reset_totals(device: u32) {
        cachette_process::reset_totals(device as usize);
    }

    /// Releases unused memory of every device.
    #[pyfunction]
    fn empty_cache(py: Python<'_>) -> PyResult<u64> {
        calls::detached(py, || cachette_process::empty_cache().map_err(|(_, error)| error))?
            .map_err(error::of_allocator)
    }

    /// The device's free and total memory, in bytes.
    #[pyfunction]
    fn memory_info(device: u32) -> PyResult<(u64, u64)> {
        let info = allocator(device)?.device().memory_info();
        let info = info.map_err(error::of_device)?;
        Ok((info.free, info.total))
    }

    /// Limits the allocator to a fraction of the device's memory; 1 removes the limit.
    #[pyfunction]
    fn set_memory_fraction(fraction: f64, device: u32) -> PyResult<()> {
        let set = allocator(device)?.set_memory_fraction(fraction);
        set.map_err(error::of_allocator)
    }

    /// The limit as a fraction of the device's memory; 1 without a limit.
    #[pyfunction]
    fn memory_fraction(device: u32) -> PyResult<f64> {
        Ok(allocator(device)?.memory_fraction())
    }

    /// Registers `observer(device, bytes, total, free)` for out-of-memory errors, on any device.
    #[pyfunction]
    fn on_out_of_memory(observer: Py<PyAny>) {
        cachette_process::on_out_of_memory(move |report| {
            calls::call_back(&observer, cachette_torch::observed(report));
        });
    }

    /// Whether exactly `addresses` are allocated in a pool, in any order.
    #[pyfunction]
    fn pool_check_live_allocations(device: u32, pool: (u64, u64), addresses: HashSet<u64>) -> PyResult<bool> {
        let (capture, user) = pool;
        let pool = allocator(device)?.open_pool(PoolId { capture, user });
        let pool = pool.map_err(error::of_allocator)?;
        let addresses: Vec<_> = addresses.into_iter().collect();
        Ok(pool.check_live_allocations(&addresses))
    }
}

/// The functions that PyTorch calls, by name.
fn addresses() -> [(&'static str, usize); 10] {
    use cachette_torch as torch;
    macro_rules! named {
        ($($name:ident),*) => { [$((stringify!($name), torch::$name as *const () as usize)),*] };
    }
    named![
        cachette_torch_alloc,
        cachette_torch_free,
        cachette_torch_init,
        cachette_torch_reset,
        cachette_torch_memory_fraction,
        cachette_torch_base_alloc,
        cachette_torch_record_stream,
        cachette_torch_begin_allocate_to_pool,
        cachette_torch_end_allocate_to_pool,
        cachette_torch_release_pool
    ]
}

/// The allocator of a device, opened if necessary.
pub(crate) fn allocator(device: u32) -> PyResult<&'static Allocator> {
    cachette_process::allocator(device).map_err(error::of_process)
}
