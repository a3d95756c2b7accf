//! Saving and restoring the state of a pool.

use cachette::pool::Checkpoint;

use crate::guard::{call, promises};
use crate::handle::{destroy, into_handle};
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
/// failure changes nothing.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_restore(pool: *mut PoolHandle, checkpoint: *const CheckpointHandle) -> Status {
    call!([handle(pool), handle(checkpoint)], pool.inner.restore(&checkpoint.inner)?)
}

/// Destroys a saved state; NULL is ignored. The pool does not change.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_checkpoint_destroy(checkpoint: *mut CheckpointHandle) -> Status {
    // SAFETY: 1. is the caller's promise.
    unsafe { destroy(checkpoint) }
}
