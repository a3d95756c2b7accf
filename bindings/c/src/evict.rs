//! Eviction: pools give up their memory under pressure, and get it back when they are used.

use cachette::evict::Resident;

use crate::allocator::AllocatorHandle;
use crate::guard::{call, promises};
use crate::handle::{destroy, into_handle};
use crate::pool::PoolHandle;
use crate::status::Status;

/// A guard: while it lives, its pool is awake and is not evicted.
#[derive(Debug)]
pub struct ResidentHandle {
    _inner: Resident,
}

/// Wakes the pool if it sleeps, and keeps it on the device until `cachette_resident_release`.
///
/// If there is too little memory, evictable pools without guards are evicted. Contents that were dropped are written
/// again by the pool's `reload` callback, before any thread gets a guard.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_make_resident(
    pool: *mut PoolHandle,
    out_resident: *mut *mut ResidentHandle,
) -> Status {
    call!(
        [out(out_resident), handle(pool)],
        *out_resident = into_handle(ResidentHandle { _inner: pool.inner.make_resident()? })
    )
}

/// Ends a guard, on any thread; NULL is ignored. Work that was queued until now still finds its memory.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_resident_release(resident: *mut ResidentHandle) -> Status {
    // SAFETY: 1. is the caller's promise.
    unsafe { destroy(resident) }
}

/// Evicts pools without guards until they have released `bytes`, or none is left, and writes the released bytes.
///
/// Requests that lack memory do this themselves. It is for programs that give memory to others in time.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_evict(allocator: *mut AllocatorHandle, bytes: u64, out_released: *mut u64) -> Status {
    call!([out(out_released), handle(allocator)], *out_released = allocator.inner.evict(bytes)?)
}

/// Writes the bytes of evictable pools that are awake and have no guard.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_evictable_bytes(allocator: *const AllocatorHandle, out_bytes: *mut u64) -> Status {
    call!([out(out_bytes), handle(allocator)], *out_bytes = allocator.inner.evictable_bytes())
}
