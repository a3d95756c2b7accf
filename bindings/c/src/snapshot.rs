//! What is held and what happened, as files.

use std::ffi::c_char;
use std::path::Path;

use cachette::snapshot;

use crate::allocator::AllocatorHandle;
use crate::given::handle;
use crate::guard::guard;
use crate::pool::PoolHandle;
use crate::status::Status;
use crate::text;

/// Writes what the allocator holds, and what happened as far as a history was recorded, to a file.
///
/// The name says the format: `.pickle` is what PyTorch's memory viewer reads, `.json` is this project's own. The file
/// is there whole or not at all.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_save_snapshot(allocator: *const AllocatorHandle, path: *const c_char) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let allocator = unsafe { handle(allocator, "allocator") }?;
        // SAFETY: 3. is the caller's promise.
        let path = unsafe { text::required(path, "path") }?;
        Ok(snapshot::save(&allocator.inner.snapshot(), Path::new(path))?)
    })
}

/// The same of one pool alone.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_save_snapshot(pool: *const PoolHandle, path: *const c_char) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let pool = unsafe { handle(pool, "pool") }?;
        // SAFETY: 3. is the caller's promise.
        let path = unsafe { text::required(path, "path") }?;
        Ok(snapshot::save(&pool.inner.snapshot(), Path::new(path))?)
    })
}
