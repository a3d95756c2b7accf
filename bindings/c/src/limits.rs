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

/// Limits the allocator to a fraction of the device's memory, from 0 to 1; 1 removes the limit.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_set_memory_fraction(allocator: *mut AllocatorHandle, fraction: f64) -> Status {
    call!([handle(allocator)], allocator.inner.set_memory_fraction(fraction)?)
}

/// Writes the limit as a fraction of the device's memory; 1 if there is none, or if it exceeds the device's memory.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_memory_fraction(allocator: *const AllocatorHandle, out_fraction: *mut f64) -> Status {
    call!([out(out_fraction), handle(allocator)], {
        let total = allocator.inner.device_info().total_memory;
        *out_fraction = allocator.inner.memory_limit().map_or(1.0, |limit| fraction(limit, total));
    })
}

#[expect(clippy::cast_precision_loss, reason = "a fraction of a device needs no single bytes")]
fn fraction(limit: u64, total: u64) -> f64 {
    (limit as f64 / total as f64).min(1.0)
}
