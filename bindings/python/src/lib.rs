//! The native half of the Python package `cachette_gpu`.
//!
//! Users import the Python half (`python/cachette_gpu`). This half contains what needs Rust:
//!
//! | file | contents |
//! |---|---|
//! | `allocator.rs`, `stream.rs`, `allocation.rs`, `growable.rs`, `pool.rs` | the classes of the package |
//! | `memory.rs`, `view.rs` | memory for other libraries: DLPack and the CUDA array interface |
//! | `devices.rs` | the list of devices |
//! | `plugin.rs` | the process-wide plug-in for PyTorch |
//! | `cupy.rs`, `onnxruntime.rs`, `shared.rs` | the functions that CuPy and ONNX Runtime call |
//! | `program.rs` | the program `cachette` |
//! | `sanitizer.rs` | the sanitizer of reused memory |
//! | `source.rs` | libraries that a pool can allocate from |
//! | `sleep.rs`, `pinned.rs` | sleep mode, and pinned host memory |
//! | `history.rs`, `snapshot.rs`, `recording.rs` | histories and snapshots |
//! | `stacks.rs`, `code_locations.rs`, `interpreter.rs`, `torch_frames.rs` | stacks of Python, PyTorch and native code |
//! | `calls.rs`, `per_process.rs` | calls without the GIL, callbacks of the program, and forks |
//! | `config.rs`, `error.rs`, `metrics.rs`, `report.rs`, `sequence.rs`, `stats.rs` | values between the two languages |
//!
//! The C functions that PyTorch calls are those of the crate `cachette_torch`; this library exports them, so that
//! PyTorch and Python use the same instance.

mod allocation;
mod allocator;
mod calls;
mod code_locations;
mod component;
mod config;
mod cupy;
mod devices;
mod error;
mod growable;
mod history;
mod interpreter;
mod memory;
mod metrics;
mod onnxruntime;
mod per_process;
mod pinned;
mod plugin;
mod pool;
mod program;
mod recording;
mod report;
mod sanitizer;
mod sequence;
mod shared;
mod sleep;
mod snapshot;
mod source;
mod stacks;
mod stats;
mod stream;
mod torch_frames;
mod view;

use pyo3::prelude::*;

/// The native half of `cachette_gpu`.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::allocation::PyAllocation;
    #[pymodule_export]
    use crate::allocator::PyAllocator;
    #[pymodule_export]
    use crate::component::PyComponent;
    #[pymodule_export]
    use crate::config::normalise_config;
    #[pymodule_export]
    use crate::cupy::cupy;
    #[pymodule_export]
    use crate::devices::{devices, why_unusable};
    #[pymodule_export]
    use crate::growable::PyGrowable;
    #[pymodule_export]
    use crate::history::{get_memory_metadata, set_memory_metadata};
    #[pymodule_export]
    use crate::onnxruntime::onnxruntime;
    #[pymodule_export]
    use crate::pinned::{PyPinned, PyPinnedAllocation};
    #[pymodule_export]
    use crate::plugin::plugin;
    #[pymodule_export]
    use crate::pool::{PyPool, PyResident};
    #[pymodule_export]
    use crate::program::run_program;
    #[pymodule_export]
    use crate::sanitizer::{PySanitizer, default_stream};
    #[pymodule_export]
    use crate::stream::PyStream;
    #[pymodule_export]
    use crate::view::PyView;

    /// The version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::error::import(module.py())
    }
}
