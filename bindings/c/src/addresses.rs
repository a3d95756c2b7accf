//! Addresses of a pool's memory in files, to be restored by another process.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use cachette::addresses::Addresses;

use crate::allocator::AllocatorHandle;
use crate::convert::stream_of;
use crate::guard::{call, promises};
use crate::handle::into_handle;
use crate::pool::PoolHandle;
use crate::status::Status;

/// Writes the addresses of the pool's memory to a file, for `cachette_restore_addresses`. The contents are not saved.
///
/// A graph that was captured in the pool can be built again in a process that has memory there.
#[doc = promises!("1 and 3")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_save_addresses(pool: *const PoolHandle, path: *const c_char) -> Status {
    call!([handle(pool), text(path)], pool.inner.save_addresses()?.write_to(path)?)
}

/// Creates a pool with memory at the addresses of a file, and allocates what was allocated; `cachette_free` frees it.
///
/// All memory belongs to `stream`, and its contents are undefined. A failure changes nothing. Call it before anything
/// else allocates on the device: the text of the failure names what has an address. Release the pool with
/// `cachette_pool_release`.
#[doc = promises!("1, 2, 3 and 4")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_restore_addresses(
    allocator: *mut AllocatorHandle,
    path: *const c_char,
    stream: *mut c_void,
    out_pool: *mut *mut PoolHandle,
) -> Status {
    call!([out(out_pool), handle(allocator), text(path)], {
        // SAFETY: 4. is the caller's promise.
        let stream = unsafe { allocator.inner.adopt_stream(stream_of(stream)) }?;
        let (pool, blocks) = allocator.inner.restore_addresses(&Addresses::read_from(path)?, &stream)?;
        let pool = PoolHandle { inner: Arc::new(pool), label: allocator.label };
        for block in blocks {
            // The caller knows the addresses: they are those of the file.
            let _address = block.into_raw_as(pool.label);
        }
        *out_pool = into_handle(pool);
    })
}
