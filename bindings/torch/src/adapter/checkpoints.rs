//! Checkpoints of pools.

use std::ffi::{c_int, c_void};
use std::ptr;

use cachette::pool::Checkpoint;

use crate::arguments::User;
use crate::entry::{number_of, or_raise, pointer, with_vendor};
use crate::hooks::MempoolId;
use crate::pools;

/// Called for each address.
pub type Noted = unsafe extern "C-unwind" fn(user: User, ptr: *mut c_void);

/// Saves the state of a pool. Destroy it with [`cachette_adapter_drop_checkpoint`].
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_checkpoint(device: c_int, id: MempoolId) -> *mut Checkpoint {
    let saved = or_raise(|| {
        let pool = pools::open(number_of(device)?, id.into())?;
        with_vendor(pool.allocator(), pool.checkpoint()).map(Some)
    });
    saved.map_or(ptr::null_mut(), |saved| Box::into_raw(Box::new(saved)))
}

/// Destroys a saved state; null is ignored.
///
/// # Safety
///
/// 1. It is from [`cachette_adapter_checkpoint`], and is not used after this.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_drop_checkpoint(checkpoint: *mut Checkpoint) {
    if !checkpoint.is_null() {
        // SAFETY: 1. is the caller's promise.
        drop(unsafe { Box::from_raw(checkpoint) });
    }
}

/// Restores a state of a pool, and reports the freed and then the allocated addresses. A failure changes nothing.
///
/// # Safety
///
/// 1. `checkpoint` is from [`cachette_adapter_checkpoint`].
/// 2. Both functions may be called with `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_restore(
    device: c_int,
    checkpoint: *const Checkpoint,
    freed: Noted,
    allocated: Noted,
    user: User,
) {
    let restored = or_raise(|| {
        // SAFETY: 1. is the caller's promise.
        let checkpoint = unsafe { &*checkpoint };
        let pool = pools::open(number_of(device)?, checkpoint.pool())?;
        with_vendor(pool.allocator(), pool.restore(checkpoint))
    });
    for address in restored.freed {
        // SAFETY: 2. is the caller's promise.
        unsafe { freed(user, pointer(address)) };
    }
    for address in restored.allocated {
        // SAFETY: 2. is the caller's promise.
        unsafe { allocated(user, pointer(address)) };
    }
}
