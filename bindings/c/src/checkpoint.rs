//! The state of a pool, to be brought back later.

use std::ffi::c_void;
use std::ptr;

use cachette::pool::Checkpoint;

use crate::convert::pointer_to;
use crate::given::{copy_out, give, handle, out, take};
use crate::guard::guard;
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
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_checkpoint(
    pool: *mut PoolHandle,
    out_checkpoint: *mut *mut CheckpointHandle,
) -> Status {
    guard(|| {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_checkpoint, ptr::null_mut(), "out_checkpoint") }?;
        // SAFETY: 1. is the caller's promise.
        let pool = unsafe { handle(pool, "pool") }?;
        *out = give(CheckpointHandle { inner: pool.inner.checkpoint()? });
        Ok(())
    })
}

/// Brings a state of the pool back: frees what is allocated, and allocates what was, at the same addresses. After a
/// failure nothing has changed. To learn what it frees, save the state before it.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_restore(pool: *mut PoolHandle, checkpoint: *const CheckpointHandle) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let pool = unsafe { handle(pool, "pool") }?;
        // SAFETY: 1. is the caller's promise.
        let checkpoint = unsafe { handle(checkpoint, "checkpoint") }?;
        pool.inner.restore(&checkpoint.inner)?;
        Ok(())
    })
}

/// Writes the addresses that were allocated, in order, to an array with room for `capacity` of them, and how many
/// there are. NULL with a capacity of 0 only asks how many. Nothing is written to an array that is too small.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_checkpoint_addresses(
    checkpoint: *const CheckpointHandle,
    addresses: *mut *mut c_void,
    capacity: usize,
    out_count: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_count, 0, "out_count") }?;
        // SAFETY: 1. is the caller's promise.
        let checkpoint = unsafe { handle(checkpoint, "checkpoint") }?;
        let saved: Vec<_> = checkpoint.inner.addresses();
        let saved: Vec<_> = saved.into_iter().map(pointer_to).collect();
        *out = saved.len();
        // SAFETY: 2. is the caller's promise.
        unsafe { copy_out(&saved, addresses, capacity) }
    })
}

/// Destroys a saved state; NULL is nothing. The pool is not changed.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_checkpoint_destroy(checkpoint: *mut CheckpointHandle) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        drop(unsafe { take(checkpoint) });
        Ok(())
    })
}
