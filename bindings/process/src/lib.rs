//! One cache per process.
//!
//! Several stacks of one program, such as PyTorch and CuPy, allocate from the same devices. Each of them takes its
//! allocator as C functions without user data. So the process has one allocator per device, and all stacks share it:
//! memory that one frees serves the next, and one limit, one history and one snapshot cover all.
//!
//! [`start`] selects the driver and the configuration, once. [`allocator`] returns the allocator of a device, created
//! at first use. A program that calls neither gets both at the first request: the loaded driver, and the configuration
//! of `CACHETTE_ALLOC_CONF`.
//!
//! ```
//! use cachette::Label;
//! use cachette::hal::StreamRef;
//!
//! cachette_process::start("host", &cachette::Config::default())?;
//! let label = Label::new("my-stack");
//! let shared = cachette_process::allocator(0)?;
//! let memory = unsafe { shared.allocate_raw_as(1 << 20, StreamRef::DEFAULT, label) }?; // which always exists
//! let snapshot = cachette_process::snapshot(None, cachette::snapshot::SnapshotOptions::default());
//! assert_eq!(snapshot.texts.get(snapshot.segments[0].blocks[0].label), "my-stack");
//! shared.free_raw(memory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The log
//!
//! `CACHETTE_LOG=warn` writes lines to stderr for waits of 10 ms and more, out-of-memory errors, direct segments in place
//! of elastic ones, and if other processes cannot be asked for memory. `info` adds segments and chunks that come from the device or go back to it.
//!
//! # Other processes
//!
//! The shared allocators give idle memory to other processes of the same user on the same device, and ask them for it
//! before a request fails, unless the configuration says `reclaim:False`.
//!
//! # Forks and the end of the process
//!
//! A driver does not survive a fork. In a child that was forked after the driver was first used, [`allocator`] fails
//! with advice and [`find`] returns `None`. The driver is not used before the first allocation, so a program may start,
//! fork, and use devices in its children.
//!
//! Allocators are never dropped: at the end of the process the driver may be unloaded before them.

mod error;
mod figures;
mod fork;
mod guard;
mod log;
mod state;
mod stderr;

pub use error::{Error, StartError};
pub use figures::{empty_cache, reset_totals, stats};
pub use fork::is_forked;
pub use guard::{Panicked, guarded};
pub use log::log;
pub use state::{
    MOST_DEVICES, allocator, backend, caches, config, existing, find, is_started, last_out_of_memory, on_out_of_memory,
    on_pressure, opened, record_history, records_history, set_caching, snapshot, start, start_on, track, update_config,
};
pub use stderr::{FirstOnly, write_line};
