//! Sleep mode: pools release their memory and keep their addresses.

use std::ffi::{c_char, c_void};

use cachette::sleep::{Contents, Progress, SleepStats};

use crate::allocator::AllocatorHandle;
use crate::guard::{call, promises};
use crate::pool::PoolHandle;
use crate::status::Status;
use crate::structure::{Structure, same_fields};

/// The result of a sleep; all zero if the pool was asleep already.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SleptFigures {
    /// Bytes that were released to the device.
    pub released: u64,
    /// Bytes that were saved to host memory.
    pub saved: u64,
}

impl Structure for SleptFigures {
    const FIRST_SIZE: usize = 16;
}

same_fields!(SleepStats => SleptFigures { released, saved });

/// Called with the progress of a sleep or wake, in bytes, on the thread of that call. It must not call the allocator.
pub type ProgressCallback = Option<unsafe extern "C" fn(user: *mut c_void, done: u64, total: u64)>;

/// Calls the program's function.
///
/// # Safety
///
/// Promise 6 of the crate, until the closure is dropped.
unsafe fn teller(progress: ProgressCallback, user: *mut c_void) -> impl FnMut(Progress) {
    move |so_far| {
        if let Some(tell) = progress {
            // SAFETY: 6. is the caller's promise.
            unsafe { tell(user, so_far.done, so_far.total) };
        }
    }
}

const fn contents(keep: i32) -> Contents {
    if keep == 0 { Contents::Discard } else { Contents::Keep }
}

/// Releases all memory of the pool to the device, and keeps every address. `size` is `sizeof *out`.
///
/// With `keep` the contents are saved to pinned host memory; with 0 they are discarded. Until the pool wakes, the
/// memory must not be used, graphs that use it must not be launched, and requests to the pool fail. Memory may be
/// freed. The call waits for the streams of the allocator, and needs elastic segments, the default. `progress` may be
/// NULL.
#[doc = promises!("1, 2 and 6")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_sleep(
    pool: *mut PoolHandle,
    keep: i32,
    progress: ProgressCallback,
    user: *mut c_void,
    out: *mut SleptFigures,
    size: usize,
) -> Status {
    call!([structure(out, size), handle(pool)], {
        // SAFETY: 6. is the caller's promise.
        let tell = unsafe { teller(progress, user) };
        out.write(&pool.inner.sleep_with(contents(keep), tell)?.into());
    })
}

/// Allocates the memory of the pool again, at the same addresses and with the saved contents, and writes the number of
/// bytes. If there is too little memory, the pool stays asleep and may be woken later. `progress` may be NULL.
#[doc = promises!("1, 2 and 6")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_wake(
    pool: *mut PoolHandle,
    progress: ProgressCallback,
    user: *mut c_void,
    out_bytes: *mut u64,
) -> Status {
    call!([out(out_bytes), handle(pool)], {
        // SAFETY: 6. is the caller's promise.
        let tell = unsafe { teller(progress, user) };
        *out_bytes = pool.inner.wake_with(tell)?;
    })
}

/// Writes whether the pool is asleep.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_is_asleep(pool: *const PoolHandle, out_asleep: *mut bool) -> Status {
    call!([out(out_asleep), handle(pool)], *out_asleep = pool.inner.is_asleep())
}

/// Puts every pool with this tag to sleep, as `cachette_pool_sleep` does; all of them or none.
#[doc = promises!("1, 2 and 3")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_sleep_tagged(
    allocator: *mut AllocatorHandle,
    tag: *const c_char,
    keep: i32,
    out: *mut SleptFigures,
    size: usize,
) -> Status {
    call!(
        [structure(out, size), handle(allocator), text(tag)],
        out.write(&allocator.inner.sleep_tagged(tag, contents(keep))?.into())
    )
}

/// Wakes every pool with this tag, and writes the number of bytes.
#[doc = promises!("1, 2 and 3")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_wake_tagged(
    allocator: *mut AllocatorHandle,
    tag: *const c_char,
    out_bytes: *mut u64,
) -> Status {
    call!([out(out_bytes), handle(allocator), text(tag)], *out_bytes = allocator.inner.wake_tagged(tag)?)
}

/// Frees the host memory of pools that are awake again, and writes its bytes. Otherwise the next sleep reuses it.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_release_contents(allocator: *mut AllocatorHandle, out_bytes: *mut u64) -> Status {
    call!([out(out_bytes), handle(allocator)], *out_bytes = allocator.inner.release_contents())
}
