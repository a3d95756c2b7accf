//! The pairs of functions, one for each slot.

use std::ffi::{c_int, c_void};
use std::ptr;

use cachette::hal::StreamRef;
use cachette_process as process;

use super::{AllocateFunction, FreeFunction, serving};
use crate::counters::FAILED_SLOTS;
use crate::entry::{guarded, pointer, tell_of_free};
use crate::error::Error;

/// The number of slots.
pub(super) const SLOTS: usize = 32;

/// An array of a generic function, instantiated for every number.
macro_rules! for_each_slot {
    ($function:ident: $($number:literal)*) => {
        [$($function::<$number>),*]
    };
}

pub(super) static ALLOCATE: [AllocateFunction; SLOTS] = for_each_slot!(allocate:
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
pub(super) static FREE: [FreeFunction; SLOTS] = for_each_slot!(free:
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);

/// Allocates from slot `N`; null on out-of-memory.
///
/// # Safety
///
/// As for [`cachette_torch_alloc`](crate::cachette_torch_alloc).
unsafe extern "C-unwind" fn allocate<const N: usize>(size: usize, device: c_int, stream: *mut c_void) -> *mut c_void {
    let stream = StreamRef::from_raw(stream as usize);
    let allocate = || {
        let serving = serving(N).ok_or(Error::SlotDropped)?;
        // SAFETY: the caller's promises.
        unsafe { serving.allocate(size as u64, device, stream) }
    };
    match guarded(allocate) {
        Ok(address) => pointer(address),
        Err(error) => {
            // PyTorch reports every failure as out-of-memory, so other errors are reported here.
            if !error.is_out_of_memory() {
                FAILED_SLOTS.tell(format_args!("a memory pool gets no memory: {error}"));
            }
            ptr::null_mut()
        }
    }
}

/// Frees memory of slot `N`; null is ignored. It never throws.
///
/// # Safety
///
/// As for [`cachette_torch_free`](crate::cachette_torch_free).
unsafe extern "C-unwind" fn free<const N: usize>(ptr: *mut c_void, size: usize, device: c_int, stream: *mut c_void) {
    let _ = (size, stream);
    if ptr.is_null() || process::is_forked() {
        return;
    }
    let free = || {
        let serving = serving(N).ok_or(Error::SlotDropped)?;
        serving.free(ptr as u64, device)
    };
    if let Err(error) = guarded(free) {
        tell_of_free(&error);
    }
}
