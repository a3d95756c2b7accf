//! Snapshot files.

use std::ffi::c_char;
use std::path::Path;

use cachette::snapshot;

use crate::allocator::AllocatorHandle;
use crate::guard::{call, promises};
use crate::pool::PoolHandle;
use crate::status::Status;

/// Writes a snapshot to a file: the segments, and the recorded history.
///
/// The extension selects the format: `.pickle` for PyTorch's memory viewer, `.json` for Cachette's own. The file is
/// written completely or not at all.
#[doc = promises!("1 and 3")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_save_snapshot(allocator: *const AllocatorHandle, path: *const c_char) -> Status {
    call!([handle(allocator), text(path)], snapshot::save(&allocator.inner.snapshot(), Path::new(path))?)
}

/// Writes a snapshot of one pool.
#[doc = promises!("1 and 3")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_save_snapshot(pool: *const PoolHandle, path: *const c_char) -> Status {
    call!([handle(pool), text(path)], snapshot::save(&pool.inner.snapshot(), Path::new(path))?)
}
