//! What is held and what happened, as files.

use std::ffi::c_char;
use std::path::Path;

use cachette::snapshot;

use crate::allocator::AllocatorHandle;
use crate::guard::{call, promises};
use crate::pool::PoolHandle;
use crate::status::Status;

/// Writes what the allocator holds, and what happened as far as a history was recorded, to a file.
///
/// The name says the format: `.pickle` is what PyTorch's memory viewer reads, `.json` is this project's own. The file
/// is there whole or not at all.
#[doc = promises!("1 and 3")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_save_snapshot(allocator: *const AllocatorHandle, path: *const c_char) -> Status {
    call!([handle(allocator), text(path)], snapshot::save(&allocator.inner.snapshot(), Path::new(path))?)
}

/// The same of one pool alone.
#[doc = promises!("1 and 3")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_save_snapshot(pool: *const PoolHandle, path: *const c_char) -> Status {
    call!([handle(pool), text(path)], snapshot::save(&pool.inner.snapshot(), Path::new(path))?)
}
