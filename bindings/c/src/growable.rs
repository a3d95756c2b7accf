//! Growable allocations: addresses now, and memory where and when the program wants it.

use std::ffi::c_void;

use cachette::Growable;

use crate::allocator::AllocatorHandle;
use crate::convert::{pointer_to, stream_of};
use crate::guard::{call, promises};
use crate::handle::{destroy, into_handle};
use crate::pool::PoolHandle;
use crate::status::Status;
use crate::structure::Structure;

/// Addresses whose memory the program adds and removes. It is thread-safe.
#[derive(Debug)]
pub struct GrowableHandle {
    inner: Growable,
}

/// What a growable allocation has.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct GrowableFigures {
    /// The first address.
    pub address: *mut c_void,
    /// The bytes of the addresses: those requested, in whole pages.
    pub bytes: u64,
    /// The committed bytes.
    pub committed: u64,
    /// The bytes of a page: memory is added and removed in whole pages.
    pub page: u64,
}

impl Structure for GrowableFigures {
    const FIRST_SIZE: usize = 32;
}

/// Reserves addresses for up to `most_bytes`, without memory. They may be more than the device has.
///
/// Memory comes and goes in the order of `stream`. Destroy it with `cachette_growable_destroy`.
#[doc = promises!("1, 2 and 4")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_growable_create(
    allocator: *mut AllocatorHandle,
    most_bytes: u64,
    stream: *mut c_void,
    out_growable: *mut *mut GrowableHandle,
) -> Status {
    call!([out(out_growable), handle(allocator)], {
        // SAFETY: 4. is the caller's promise.
        let stream = unsafe { allocator.inner.adopt_stream(stream_of(stream)) }?;
        *out_growable = into_handle(GrowableHandle { inner: allocator.inner.allocate_growable(most_bytes, &stream)? });
    })
}

/// Does the same in a pool: the memory sleeps, wakes and is evicted with it.
#[doc = promises!("1, 2 and 4")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_growable_create(
    pool: *mut PoolHandle,
    most_bytes: u64,
    stream: *mut c_void,
    out_growable: *mut *mut GrowableHandle,
) -> Status {
    call!([out(out_growable), handle(pool)], {
        // SAFETY: 4. is the caller's promise.
        let stream = unsafe { pool.stream(stream) }?;
        *out_growable = into_handle(GrowableHandle { inner: pool.inner.allocate_growable(most_bytes, &stream)? });
    })
}

/// Writes the addresses and the committed bytes. `size` is `sizeof *out`.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_growable_info(
    growable: *const GrowableHandle,
    out: *mut GrowableFigures,
    size: usize,
) -> Status {
    call!([handle(growable), structure(out, size)], {
        let growable = &growable.inner;
        out.write(&GrowableFigures {
            address: pointer_to(growable.address()),
            bytes: growable.bytes(),
            committed: growable.committed(),
            page: growable.page(),
        });
    })
}

/// Puts memory behind the bytes from `offset` on, which have none. Their contents are undefined.
///
/// Fails like a request of the same bytes if memory is short, and then changes nothing.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_growable_commit(growable: *mut GrowableHandle, offset: u64, bytes: u64) -> Status {
    call!([handle(growable)], growable.inner.commit(offset..offset.saturating_add(bytes))?)
}

/// Takes the memory behind committed bytes away, after the work that the stream has queued so far.
///
/// A page leaves once none of its bytes is committed.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_growable_decommit(growable: *mut GrowableHandle, offset: u64, bytes: u64) -> Status {
    call!([handle(growable)], growable.inner.decommit(offset..offset.saturating_add(bytes))?)
}

/// Records that work in `stream` also uses the memory that is committed now. Its next use waits for that work.
#[doc = promises!("1 and 4")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_growable_record_stream(growable: *mut GrowableHandle, stream: *mut c_void) -> Status {
    call!([handle(growable)], {
        // SAFETY: 4. is the caller's promise.
        let stream = unsafe { growable.inner.allocator().adopt_stream(stream_of(stream)) }?;
        growable.inner.record_stream(&stream);
    })
}

/// Decommits everything and ends the addresses; NULL is ignored.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_growable_destroy(growable: *mut GrowableHandle) -> Status {
    // SAFETY: 1. is the caller's promise.
    unsafe { destroy(growable) }
}
