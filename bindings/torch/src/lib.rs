//! Cachette as PyTorch's allocator.
//!
//! PyTorch takes an allocator as C functions without user data. So there is one plug-in per process. [`start`] selects
//! its driver and configuration; [`allocator`] returns the allocator of a device, created at first use. A program that
//! only passes the functions to PyTorch need not call `start`: the first request starts the plug-in with the loaded
//! driver and the environment's configuration.
//!
//! ```
//! use cachette_torch::{cachette_torch_alloc, cachette_torch_free};
//!
//! cachette_torch::start("host", &cachette::Config::default())?;
//! let stream = std::ptr::null_mut(); // the default stream, which always exists
//! let memory = unsafe { cachette_torch_alloc(1 << 20, 0, stream) };
//! assert_eq!(cachette_torch::allocator(0)?.allocated_bytes(), 1 << 20);
//! unsafe { cachette_torch_free(memory, 1 << 20, 0, stream) };
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | functions | use in PyTorch |
//! |---|---|
//! | [`cachette_torch_alloc`], [`cachette_torch_free`] | the allocator itself |
//! | `cachette_torch_init` and seven more | its hooks |
//! | [`adapter`] | a C++ class, compiled against the installed PyTorch |
//! | [`Slot::alloc_address`], [`Slot::free_address`] | the allocator below a `MemPool`, up to 32 of them |
//!
//! # Failures
//!
//! PyTorch does not check for null. So a failed request throws PyTorch's exception, `OutOfMemoryError` or `Error`, with
//! the allocator's text (see `throw.rs`). If PyTorch's classes are not found it throws `std::runtime_error`; in a
//! process without C++ the text goes to stderr and the function returns null. Freeing never throws, since it is called
//! by destructors: failures are counted, see [`counters`]. Slots return null, which a `MemPool` handles.
//!
//! # Processes
//!
//! A driver does not survive a fork. In a child that was forked after the driver was first used, allocating throws an
//! error with advice, and freeing does nothing. The driver is not used before the first allocation, so a program may
//! start the plug-in, fork, and use devices in its children.

pub mod adapter;
mod counters;
mod entry;
mod error;
mod fork;
mod hooks;
mod message;
mod pools;
mod processes;
mod slots;
mod state;
mod std_function;
mod symbols;
mod throw;

pub use counters::{Counters, counters};
pub use entry::{cachette_torch_alloc, cachette_torch_free};
pub use error::{Error, StartError};
pub use hooks::{
    MempoolId, cachette_torch_base_alloc, cachette_torch_begin_allocate_to_pool, cachette_torch_end_allocate_to_pool,
    cachette_torch_init, cachette_torch_memory_fraction, cachette_torch_record_stream, cachette_torch_release_pool,
    cachette_torch_reset,
};
pub use pools::new_pool_id;
pub use processes::Process;
pub use slots::{Slot, SlotOptions};
pub use state::{
    MOST_DEVICES, allocator, backend, caches, config, find, history_entries, is_started, last_out_of_memory, observed,
    on_out_of_memory, on_pressure, opened, record_history, records_history, set_caching, snapshot, start, start_on,
    track, update_config,
};
pub use std_function::StdFunction;
