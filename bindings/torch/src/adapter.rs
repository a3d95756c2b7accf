//! The functions behind the C++ class that replaces PyTorch's allocator.
//!
//! PyTorch's wrapper around C functions keeps another table, and lacks half of an allocator's interface: statistics,
//! snapshots, user pools, checkpoints, shared memory. So a class is compiled against the installed PyTorch; its source
//! is in `bindings/python/python/cachette_gpu/torch/adapter`. It calls these functions, which have C linkage, throw C++
//! exceptions, and are found by name.
//!
//! | module | contents |
//! |---|---|
//! | `memory` | memory by its address |
//! | `pinned` | pinned memory for PyTorch's host allocator |
//! | `figures` | statistics, limits, caching, and peer access |
//! | `pools`, `checkpoints` | pools with users and sources, and their checkpoints |
//! | `contents` | snapshots, entry by entry |
//! | `contexts` | stacks with contexts of PyTorch |
//! | `watching` | callbacks for events, out-of-memory and memory pressure |
//! | `settings` | settings that the program changes |
//! | `annotations` | annotations and metadata of events and of memory |
//!
//! Both sides belong to one package and change together; [`cachette_adapter_version`] detects a mismatch.

mod annotations;
mod checkpoints;
mod contents;
mod contexts;
mod figures;
mod memory;
mod pinned;
mod pools;
mod settings;
mod watching;

pub use crate::arguments::User;
pub use crate::ipc::{
    Opened, cachette_adapter_close_shared, cachette_adapter_open_shared, cachette_adapter_share, withdraw,
    withdraw_freed,
};
pub use annotations::{
    cachette_adapter_annotate, cachette_adapter_annotate_memory, cachette_adapter_enter_context,
    cachette_adapter_leave_context, cachette_adapter_metadata, cachette_adapter_set_metadata,
};
pub use checkpoints::{Noted, cachette_adapter_checkpoint, cachette_adapter_drop_checkpoint, cachette_adapter_restore};
pub use contents::{BlockEntry, EventEntry, SegmentEntry, Text, Visitor, cachette_adapter_snapshot};
pub use contexts::{CaptureContext, cachette_adapter_stack, set_stack_source};
pub use figures::{
    Figures, cachette_adapter_allow_peer, cachette_adapter_caches, cachette_adapter_largest,
    cachette_adapter_memory_fraction, cachette_adapter_reset_peaks, cachette_adapter_reset_totals,
    cachette_adapter_set_caching, cachette_adapter_stats,
};
pub use memory::{cachette_adapter_allocate_at, cachette_adapter_bytes, cachette_adapter_free};
pub use pinned::{
    PinnedFigures, cachette_adapter_pin, cachette_adapter_pinned_empty, cachette_adapter_pinned_record,
    cachette_adapter_pinned_reset, cachette_adapter_pinned_stats, cachette_adapter_pins, cachette_adapter_unpin,
};
pub use pools::{
    PoolSource, cachette_adapter_empty_pool, cachette_adapter_pool_holds, cachette_adapter_pool_uses,
    cachette_adapter_set_no_split, cachette_adapter_set_use_on_oom, cachette_adapter_use_pool,
};
pub use settings::cachette_adapter_configure;
pub use watching::{
    cachette_adapter_on_out_of_memory, cachette_adapter_on_pressure, cachette_adapter_on_rejection,
    cachette_adapter_record_history, cachette_adapter_records_history, cachette_adapter_track,
};

/// The version of this interface.
pub const ADAPTER_VERSION: u32 = 3;

/// Returns the version of this interface.
#[unsafe(no_mangle)]
pub extern "C" fn cachette_adapter_version() -> u32 {
    ADAPTER_VERSION
}
