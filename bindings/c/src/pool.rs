//! Pools: private sets of segments.

use std::ffi::c_void;
use std::sync::Arc;

use cachette::pool::PoolStats;
use cachette::{Label, Pool, Stream};

use crate::allocator::AllocatorHandle;
use crate::convert::{address_of, pointer_to, stream_of};
use crate::failure::Failure;
use crate::guard::{call, promises};
use crate::handle::{destroy, into_handle};
use crate::pool_id::PoolName;
use crate::pool_options::{GivenOptions, Made};
use crate::status::Status;
use crate::structure::{Structure, same_fields};

/// A user of a pool. It is thread-safe.
#[derive(Debug)]
pub struct PoolHandle {
    /// Shared with the threads that entered it, which may leave after the release.
    pub(crate) inner: Arc<Pool>,
    /// The label of the allocator's handle.
    pub(crate) label: Label,
}

impl PoolHandle {
    fn new(allocator: &AllocatorHandle, pool: Pool) -> Self {
        Self { inner: Arc::new(pool), label: allocator.label }
    }

    /// The allocator's stream for a handle of the vendor.
    ///
    /// # Safety
    ///
    /// Promise 4 of the crate.
    pub(crate) unsafe fn stream(&self, stream: *mut c_void) -> Result<Stream, Failure> {
        // SAFETY: 4. is the caller's promise.
        Ok(unsafe { self.inner.allocator().adopt_stream(stream_of(stream)) }?)
    }
}

/// Statistics of a pool.
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

same_fields!(PoolStats => PoolFigures { allocations, allocated_bytes, segments, reserved_bytes });

/// Creates a pool, and its first user. `options` may be NULL; otherwise `size` is `sizeof *options`.
///
/// Release it with `cachette_pool_release`. It keeps its allocator alive.
#[doc = promises!("1, 2, 3, 6 and 7")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_create(
    allocator: *mut AllocatorHandle,
    options: *const GivenOptions,
    size: usize,
    out_pool: *mut *mut PoolHandle,
) -> Status {
    call!([out(out_pool), handle(allocator), optional_structure(options, size)], {
        let Some(options) = options else {
            *out_pool = into_handle(PoolHandle::new(allocator, allocator.inner.create_pool()));
            return Ok(());
        };
        // SAFETY: 3., 6. and 7. are the caller's promises.
        let Made { options, user } = unsafe { options.make(allocator.inner.device_info()) }?;
        let pool = allocator.inner.create_pool_with(options)?;
        if let Some(user) = user {
            user.arm();
        }
        *out_pool = into_handle(PoolHandle::new(allocator, pool));
    })
}

/// Adds a user to a pool, by its identifier. A released pool can be opened while it has live memory.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_open(
    allocator: *mut AllocatorHandle,
    id: PoolName,
    out_pool: *mut *mut PoolHandle,
) -> Status {
    call!(
        [out(out_pool), handle(allocator)],
        *out_pool = into_handle(PoolHandle::new(allocator, allocator.inner.open_pool(id.into())?))
    )
}

/// Releases a user; NULL is ignored. After the last release unused segments go back to the device. Segments with live
/// memory follow when it is freed and the cache is emptied.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_release(pool: *mut PoolHandle) -> Status {
    // SAFETY: 1. is the caller's promise.
    unsafe { destroy(pool) }
}

/// Writes the pool's identifier.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_id(pool: *const PoolHandle, out_id: *mut PoolName) -> Status {
    call!([out(out_id), handle(pool)], *out_id = pool.inner.id().into())
}

/// Writes the number of users of the pool: owners, routes, captures and graphs.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_use_count(pool: *const PoolHandle, out_count: *mut u64) -> Status {
    call!([out(out_count), handle(pool)], *out_count = pool.inner.use_count())
}

/// Allocates from the pool, as `cachette_allocate` does; `cachette_free` frees it.
#[doc = promises!("1, 2 and 4")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_allocate(
    pool: *mut PoolHandle,
    bytes: u64,
    stream: *mut c_void,
    out_address: *mut *mut c_void,
) -> Status {
    call!([out(out_address), handle(pool)], {
        // SAFETY: 4. is the caller's promise.
        let stream = unsafe { pool.stream(stream) }?;
        *out_address = pointer_to(pool.inner.allocate(bytes, &stream)?.into_raw_as(pool.label));
    })
}

/// Releases every unused segment of the pool, and writes the number of bytes. While graphs may use the pool's memory,
/// no segment is released.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_empty_cache(pool: *mut PoolHandle, out_bytes: *mut u64) -> Status {
    call!([out(out_bytes), handle(pool)], *out_bytes = pool.inner.empty_cache()?)
}

/// Writes the statistics of the pool. `size` is `sizeof *out`.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_stats(pool: *const PoolHandle, out: *mut PoolFigures, size: usize) -> Status {
    call!([handle(pool), structure(out, size)], out.write(&pool.inner.stats().into()))
}

/// Writes whether exactly these addresses are allocated in the pool, in any order.
#[doc = promises!("1, 2 and 3")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_check_live_allocations(
    pool: *const PoolHandle,
    addresses: *const *mut c_void,
    count: usize,
    out_holds: *mut bool,
) -> Status {
    call!([out(out_holds), handle(pool), list(addresses, count)], {
        let addresses: Vec<u64> = addresses.iter().map(|at| address_of(*at)).collect();
        *out_holds = pool.inner.check_live_allocations(&addresses);
    })
}
