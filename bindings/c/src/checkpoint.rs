//! Saving and restoring the state of a pool.

use std::ffi::c_void;

use cachette::pool::Checkpoint;

use crate::convert::pointer_to;
use crate::guard::{call, promises};
use crate::handle::{copy_out, destroy, into_handle};
use crate::pool::PoolHandle;
use crate::status::Status;

/// The allocations of a pool at one time.
#[derive(Debug)]
pub struct CheckpointHandle {
    inner: Checkpoint,
}

/// Saves the current allocations of the pool. It fails while a freed block waits for another stream.
///
/// Destroy it with `cachette_checkpoint_destroy`.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_checkpoint(
    pool: *mut PoolHandle,
    out_checkpoint: *mut *mut CheckpointHandle,
) -> Status {
    call!(
        [out(out_checkpoint), handle(pool)],
        *out_checkpoint = into_handle(CheckpointHandle { inner: pool.inner.checkpoint()? })
    )
}

/// Restores a state of the pool: frees the current allocations, and allocates the saved ones at the same addresses. A
/// failure changes nothing. To find out what it frees, save the state before it.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_restore(pool: *mut PoolHandle, checkpoint: *const CheckpointHandle) -> Status {
    call!([handle(pool), handle(checkpoint)], pool.inner.restore(&checkpoint.inner)?)
}

/// Writes the saved addresses, in order, to an array with room for `capacity` of them, and their number. Pass NULL and
/// 0 to get only the number. Nothing is written to an array that is too small.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_checkpoint_addresses(
    checkpoint: *const CheckpointHandle,
    addresses: *mut *mut c_void,
    capacity: usize,
    out_count: *mut usize,
) -> Status {
    call!([out(out_count), handle(checkpoint)], {
        let saved: Vec<_> = checkpoint.inner.addresses().into_iter().map(pointer_to).collect();
        *out_count = saved.len();
        // SAFETY: 2. is the caller's promise.
        unsafe { copy_out(&saved, addresses, capacity) }?;
    })
}

/// Destroys a saved state; NULL is ignored. The pool does not change.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_checkpoint_destroy(checkpoint: *mut CheckpointHandle) -> Status {
    // SAFETY: 1. is the caller's promise.
    unsafe { destroy(checkpoint) }
}
