//! Memory limits.

use crate::allocator::AllocatorHandle;
use crate::guard::{call, promises};
use crate::last::CACHETTE_NO_LIMIT;
use crate::status::Status;

/// Limits the bytes that the allocator holds; `CACHETTE_NO_LIMIT` removes the limit. A limit below what is held already
/// only prevents growth.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_set_memory_limit(allocator: *mut AllocatorHandle, bytes: u64) -> Status {
    call!([handle(allocator)], allocator.inner.set_memory_limit((bytes != CACHETTE_NO_LIMIT).then_some(bytes)))
}

/// Writes the limit in bytes, or `CACHETTE_NO_LIMIT`.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_memory_limit(allocator: *const AllocatorHandle, out_bytes: *mut u64) -> Status {
    call!([out(out_bytes), handle(allocator)], *out_bytes = allocator.inner.memory_limit().unwrap_or(CACHETTE_NO_LIMIT))
}
