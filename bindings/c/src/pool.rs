//! Pools: memory of their own for some requests.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use cachette::hal::AnyDevice;
use cachette::pool::PoolStats;
use cachette::{Pool, Stream};

use crate::allocator::AllocatorHandle;
use crate::convert::{address_of, pointer_to, stream_of};
use crate::failure::Failure;
use crate::given::{give, handle, list, out, take};
use crate::guard::guard;
use crate::pool_id::PoolName;
use crate::pool_options::{GivenOptions, Made};
use crate::status::Status;
use crate::structure::{self, Structure};

/// One user of a pool. Any thread may use it at any time.
#[derive(Debug)]
pub struct PoolHandle {
    /// Shared with the threads that have entered it, which may leave after it was released.
    pub(crate) inner: Arc<Pool<AnyDevice>>,
}

impl PoolHandle {
    fn new(pool: Pool<AnyDevice>) -> Self {
        Self { inner: Arc::new(pool) }
    }

    /// A stream of the pool's device as the allocator knows it.
    ///
    /// # Safety
    ///
    /// Promise 4 of the crate.
    pub(crate) unsafe fn stream(&self, stream: *mut c_void) -> Result<Stream<AnyDevice>, Failure> {
        // SAFETY: 4. is the caller's promise.
        Ok(unsafe { self.inner.allocator().adopt_stream(stream_of(stream)) }?)
    }
}

/// What a pool holds.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PoolFigures {
    /// Blocks that callers hold.
    pub allocations: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes held from the device or from the pool's source.
    pub reserved_bytes: u64,
}

impl Structure for PoolFigures {
    const FIRST_SIZE: usize = 32;
}

impl From<PoolStats> for PoolFigures {
    fn from(stats: PoolStats) -> Self {
        Self {
            allocations: stats.allocations,
            allocated_bytes: stats.allocated_bytes,
            segments: stats.segments,
            reserved_bytes: stats.reserved_bytes,
        }
    }
}

/// Makes a pool, and its first user. `options` may be NULL; otherwise `size` is `sizeof *options`.
///
/// Release it with `cachette_pool_release`. It keeps its allocator alive.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_create(
    allocator: *mut AllocatorHandle,
    options: *const GivenOptions,
    size: usize,
    out_pool: *mut *mut PoolHandle,
) -> Status {
    guard(|| {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_pool, ptr::null_mut(), "out_pool") }?;
        // SAFETY: 1. is the caller's promise.
        let allocator = &unsafe { handle(allocator, "allocator") }?.inner;
        if options.is_null() {
            *out = give(PoolHandle::new(allocator.create_pool()));
            return Ok(());
        }
        // SAFETY: 3. is the caller's promise; every field is a number or may be null.
        let given = unsafe { structure::read(options, size) }?;
        // SAFETY: 3., 6. and 7. are the caller's promises.
        let Made { options, user } = unsafe { given.make(allocator.device_info()) }?;
        let pool = allocator.create_pool_with(options)?;
        if let Some(user) = user {
            user.arm();
        }
        *out = give(PoolHandle::new(pool));
        Ok(())
    })
}

/// Becomes one more user of a pool, by its name. One that was released may be opened as long as anything lives in it.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_open(
    allocator: *mut AllocatorHandle,
    id: PoolName,
    out_pool: *mut *mut PoolHandle,
) -> Status {
    guard(|| {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_pool, ptr::null_mut(), "out_pool") }?;
        // SAFETY: 1. is the caller's promise.
        let allocator = unsafe { handle(allocator, "allocator") }?;
        let pool = allocator.inner.open_pool(id.into())?;
        *out = give(PoolHandle::new(pool));
        Ok(())
    })
}

/// Is a user no more; NULL is nothing. After the last user's release unused memory goes back to the device, and live
/// memory follows when it is freed and the cache is emptied.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_release(pool: *mut PoolHandle) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        drop(unsafe { take(pool) });
        Ok(())
    })
}

/// Writes the pool's name.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_id(pool: *const PoolHandle, out_id: *mut PoolName) -> Status {
    guard(|| {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_id, PoolName::NONE, "out_id") }?;
        // SAFETY: 1. is the caller's promise.
        *out = unsafe { handle(pool, "pool") }?.inner.id().into();
        Ok(())
    })
}

/// Writes how many users the pool has: owners, routes, captures and graphs.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_use_count(pool: *const PoolHandle, out_count: *mut u64) -> Status {
    guard(|| {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_count, 0, "out_count") }?;
        // SAFETY: 1. is the caller's promise.
        *out = unsafe { handle(pool, "pool") }?.inner.use_count();
        Ok(())
    })
}

/// Lets the pool's free blocks serve other requests of the same stream before those fail (1), or not (0).
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_set_use_on_oom(pool: *mut PoolHandle, on: i32) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let pool = unsafe { handle(pool, "pool") }?;
        pool.inner.set_use_on_oom(on != 0);
        Ok(())
    })
}

/// Allocates from the pool, as `cachette_allocate` does; `cachette_free` frees it.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_allocate(
    pool: *mut PoolHandle,
    bytes: u64,
    stream: *mut c_void,
    out_address: *mut *mut c_void,
) -> Status {
    guard(|| {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_address, ptr::null_mut(), "out_address") }?;
        // SAFETY: 1. is the caller's promise.
        let pool = unsafe { handle(pool, "pool") }?;
        // SAFETY: 4. is the caller's promise.
        let stream = unsafe { pool.stream(stream) }?;
        *out = pointer_to(pool.inner.allocate(bytes, &stream)?.into_raw());
        Ok(())
    })
}

/// Gives every unused segment of the pool back, and writes how many bytes that were. While graphs may use the pool's
/// memory, none is.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_empty_cache(pool: *mut PoolHandle, out_bytes: *mut u64) -> Status {
    guard(|| {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_bytes, 0, "out_bytes") }?;
        // SAFETY: 1. is the caller's promise.
        *out = unsafe { handle(pool, "pool") }?.inner.empty_cache()?;
        Ok(())
    })
}

/// Writes what the pool holds. `size` is `sizeof *out`.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_stats(pool: *const PoolHandle, out: *mut PoolFigures, size: usize) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let figures = unsafe { handle(pool, "pool") }?.inner.stats().into();
        // SAFETY: 2. is the caller's promise.
        unsafe { structure::write(&figures, out, size) }
    })
}

/// Writes whether exactly these addresses are allocated in the pool, in whatever order.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_check_live_allocations(
    pool: *const PoolHandle,
    addresses: *const *mut c_void,
    count: usize,
    out_holds: *mut bool,
) -> Status {
    guard(|| {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_holds, false, "out_holds") }?;
        // SAFETY: 1. is the caller's promise.
        let pool = unsafe { handle(pool, "pool") }?;
        // SAFETY: 3. is the caller's promise.
        let addresses = unsafe { list(addresses, count, "addresses") }?;
        let addresses: Vec<u64> = addresses.iter().map(|at| address_of(*at)).collect();
        *out = pool.inner.check_live_allocations(&addresses);
        Ok(())
    })
}
