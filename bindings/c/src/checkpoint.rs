//! The state of a pool, to be brought back later.

use std::ffi::c_void;

use cachette::pool::Checkpoint;

use crate::convert::pointer_to;
use crate::given::{copy_out, destroy, give};
use crate::guard::{call, promises};
use crate::pool::PoolHandle;
use crate::status::Status;

/// What was allocated in a pool at one moment.
#[derive(Debug)]
pub struct CheckpointHandle {
    inner: Checkpoint,
}

/// Saves what is allocated in the pool now. It fails while a block waits for another stream.
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
        *out_checkpoint = give(CheckpointHandle { inner: pool.inner.checkpoint()? })
    )
}

/// Brings a state of the pool back: frees what is allocated, and allocates what was, at the same addresses. After a
/// failure nothing has changed. To learn what it frees, save the state before it.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_restore(pool: *mut PoolHandle, checkpoint: *const CheckpointHandle) -> Status {
    call!([handle(pool), handle(checkpoint)], pool.inner.restore(&checkpoint.inner)?)
}

/// Writes the addresses that were allocated, in order, to an array with room for `capacity` of them, and how many
/// there are. NULL with a capacity of 0 only asks how many. Nothing is written to an array that is too small.
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

/// Destroys a saved state; NULL is nothing. The pool is not changed.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_checkpoint_destroy(checkpoint: *mut CheckpointHandle) -> Status {
    // SAFETY: 1. is the caller's promise.
    unsafe { destroy(checkpoint) }
}
