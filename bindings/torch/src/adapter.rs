//! What a class asks that takes the place of PyTorch's own allocator.
//!
//! PyTorch's wrapper around C functions keeps another table, and leaves out half of what an allocator is asked:
//! statistics, snapshots, pools of users, saved states, memory of other processes. A class that is compiled against the
//! installed PyTorch has none of that between; it is in `bindings/python/python/cachette/torch/adapter`, and these
//! functions are all it needs. It is C++, so they have the calling convention of C, throw as the others do, and are
//! found by name.
//!
//! | module | what it answers |
//! |---|---|
//! | `memory` | freeing by address alone |
//! | `figures` | statistics, limits, whether caches serve, and who may reach whose memory |
//! | `pools`, `checkpoints` | pools with users and sources, and their saved states |
//! | `contents` | what is held and what happened, piece by piece |
//! | `shares` | memory that several processes use |
//! | `watching` | callbacks for events, out-of-memory and memory pressure |
//! | `words` | what the program says it is doing |
//!
//! Both sides are of one package and change together: [`cachette_adapter_version`] tells them apart if they are not.

mod checkpoints;
mod contents;
mod figures;
mod memory;
mod pools;
mod shares;
mod watching;
mod words;

pub use checkpoints::{Noted, cachette_adapter_checkpoint, cachette_adapter_drop_checkpoint, cachette_adapter_restore};
pub use contents::{BlockEntry, EventEntry, SegmentEntry, Text, Visitor, cachette_adapter_snapshot};
pub use figures::{
    Figures, cachette_adapter_allow_peer, cachette_adapter_caches, cachette_adapter_largest,
    cachette_adapter_memory_fraction, cachette_adapter_reset_peaks, cachette_adapter_reset_totals,
    cachette_adapter_set_caching, cachette_adapter_stats,
};
pub use memory::{cachette_adapter_bytes, cachette_adapter_free};
pub use pools::{
    PoolSource, cachette_adapter_empty_pool, cachette_adapter_pool_holds, cachette_adapter_pool_uses,
    cachette_adapter_set_no_split, cachette_adapter_set_use_on_oom, cachette_adapter_use_pool,
};
pub use shares::{Opened, cachette_adapter_close_shared, cachette_adapter_open_shared, cachette_adapter_share};
pub use watching::{
    cachette_adapter_on_out_of_memory, cachette_adapter_on_pressure, cachette_adapter_on_rejection,
    cachette_adapter_record_history, cachette_adapter_records_history, cachette_adapter_track,
};
pub use words::{
    cachette_adapter_annotate, cachette_adapter_enter_context, cachette_adapter_leave_context,
    cachette_adapter_metadata, cachette_adapter_set_metadata,
};

use std::ffi::c_void;

use cachette::hal::AnyDevice;
use cachette::{Allocator, PointerProblem};

use crate::entry::of_memory;
use crate::error::Error;
use crate::state;

/// The number of this interface; the class was written for one of them.
pub const ADAPTER_VERSION: u32 = 1;

/// The number of this interface.
#[unsafe(no_mangle)]
pub extern "C" fn cachette_adapter_version() -> u32 {
    ADAPTER_VERSION
}

/// What a function of the caller's gets as its first argument. It is the caller's to keep for as long as it is called.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct User(pub *mut c_void);

// SAFETY: it is never followed here, and callers promise that their functions may be called by any thread.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

/// What the allocator answers that knows an address, of all devices that were used; no two of them share one.
fn ask_owner<T>(ask: impl Fn(&'static Allocator<AnyDevice>) -> Result<T, cachette::Error>) -> Result<T, Error> {
    let mut unknown = Error::Unopened { device: 0 };
    for (_, allocator) in state::opened() {
        let error = match ask(allocator) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let is_foreign = matches!(error, cachette::Error::InvalidPointer { why: PointerProblem::Foreign, .. });
        unknown = of_memory(allocator, error);
        if !is_foreign {
            break;
        }
    }
    Err(unknown)
}
