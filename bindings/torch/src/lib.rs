//! Cachette as PyTorch's allocator.
//!
//! PyTorch takes an allocator as C functions without user data. They allocate from the allocators of the process,
//! `cachette_process`, which the first request starts if the program has not.
//!
//! ```
//! use cachette_torch::{cachette_torch_alloc, cachette_torch_free};
//!
//! cachette_process::start("host", &cachette::Config::default())?;
//! let stream = std::ptr::null_mut(); // the default stream, which always exists
//! let memory = unsafe { cachette_torch_alloc(1 << 20, 0, stream) };
//! assert_eq!(cachette_process::allocator(0)?.allocated_bytes(), 1 << 20);
//! unsafe { cachette_torch_free(memory, 1 << 20, 0, stream) };
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | functions | use in PyTorch |
//! |---|---|
//! | [`cachette_torch_alloc`], [`cachette_torch_free`] | the allocator itself |
//! | `cachette_torch_init` and seven more | its hooks |
//! | [`adapter`] | a C++ class, compiled against the installed PyTorch |
//!
//! # Failures
//!
//! PyTorch does not check for null. So a failed request throws PyTorch's exception, `OutOfMemoryError` or `Error`, with
//! the allocator's text (see `throw.rs`). If PyTorch's classes are not found it throws `std::runtime_error`; in a
//! process without C++ the text goes to stderr and the function returns null. Freeing never throws, since it is called
//! by destructors: failures are counted, see [`counters`].
//!
//! # Processes
//!
//! In a child that was forked after the driver was first used, allocating throws an error with advice, and freeing does
//! nothing.

pub mod adapter;
mod arguments;
mod counters;
mod entry;
mod error;
mod hooks;
mod ipc;
mod message;
mod pools;
mod processes;
mod std_function;
mod symbols;
mod throw;

pub use arguments::{history_entries, observed};
pub use counters::{Counters, counters};
pub use entry::{cachette_torch_alloc, cachette_torch_free};
pub use error::Error;
pub use hooks::{
    MempoolId, cachette_torch_base_alloc, cachette_torch_begin_allocate_to_pool, cachette_torch_end_allocate_to_pool,
    cachette_torch_init, cachette_torch_memory_fraction, cachette_torch_record_stream, cachette_torch_release_pool,
    cachette_torch_reset, on_record_stream,
};
pub use pools::new_pool_id;
pub use processes::Process;
pub use std_function::StdFunction;
