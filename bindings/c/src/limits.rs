//! How much an allocator may hold.

use crate::allocator::AllocatorHandle;
use crate::given::{handle, out};
use crate::guard::guard;
use crate::last::CACHETTE_NO_LIMIT;
use crate::status::Status;

/// Bounds what the allocator may hold, in bytes; `CACHETTE_NO_LIMIT` is no bound. A bound below what is held already
/// only keeps it from growing.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_set_memory_limit(allocator: *mut AllocatorHandle, bytes: u64) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let allocator = unsafe { handle(allocator, "allocator") }?;
        let bound = (bytes != CACHETTE_NO_LIMIT).then_some(bytes);
        allocator.inner.set_memory_limit(bound);
        Ok(())
    })
}

/// Writes what the allocator may hold, in bytes, or `CACHETTE_NO_LIMIT`.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_memory_limit(allocator: *const AllocatorHandle, out_bytes: *mut u64) -> Status {
    guard(|| {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_bytes, 0, "out_bytes") }?;
        // SAFETY: 1. is the caller's promise.
        let limit = unsafe { handle(allocator, "allocator") }?.inner.memory_limit();
        *out = limit.unwrap_or(CACHETTE_NO_LIMIT);
        Ok(())
    })
}

/// Bounds what the allocator may hold to a fraction of the device's memory, from 0 to 1; 1 is no bound.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_set_memory_fraction(allocator: *mut AllocatorHandle, fraction: f64) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let allocator = unsafe { handle(allocator, "allocator") }?;
        Ok(allocator.inner.set_memory_fraction(fraction)?)
    })
}

/// Writes the bound as a fraction of the device's memory; 1 if there is none, or one beyond the device.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_memory_fraction(allocator: *const AllocatorHandle, out_fraction: *mut f64) -> Status {
    guard(|| {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_fraction, 0.0, "out_fraction") }?;
        // SAFETY: 1. is the caller's promise.
        let allocator = &unsafe { handle(allocator, "allocator") }?.inner;
        let total = allocator.device_info().total_memory;
        *out = allocator.memory_limit().map_or(1.0, |limit| fraction(limit, total));
        Ok(())
    })
}

#[expect(clippy::cast_precision_loss, reason = "a fraction of a device needs no single bytes")]
fn fraction(limit: u64, total: u64) -> f64 {
    (limit as f64 / total as f64).min(1.0)
}
