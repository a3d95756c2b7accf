//! What C gives: handles, places to write to, and lists.

use std::slice;

use cachette::Error;
use cachette::fork::ProcessGuard;

use crate::failure::Failure;

/// What a handle points to.
#[repr(C)]
struct Given<T> {
    /// It comes first, so that its address is the handle.
    value: T,
    origin: ProcessGuard,
}

/// The value behind a handle, unless a parent of this process opened it.
///
/// # Safety
///
/// Promise 1 of the crate, for as long as the reference is used.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: 1. is the caller's promise, and `give` made every handle.
    let given = unsafe { pointer.cast::<Given<T>>().as_ref() };
    let given = given.ok_or_else(|| Failure::null(name))?;
    if given.origin.is_inherited() {
        return Err(Error::Forked.into());
    }
    Ok(&given.value)
}

/// The value behind a handle, also of a parent of this process; for calls that tell by themselves or give something up.
///
/// # Safety
///
/// Promise 1 of the crate, for as long as the reference is used.
pub(crate) unsafe fn any_handle<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: 1. is the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::null(name))
}

/// A place to write to, which holds `empty` from now on, so that a caller who overlooks a failure finds nothing.
///
/// # Safety
///
/// Promise 2 of the crate, for as long as the reference is used.
pub(crate) unsafe fn out<'a, T: Copy>(pointer: *mut T, empty: T, name: &str) -> Result<&'a mut T, Failure> {
    if pointer.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: 2. is the caller's promise.
    unsafe { pointer.write(empty) };
    // SAFETY: 2. is the caller's promise, and it was written above.
    Ok(unsafe { &mut *pointer })
}

/// Hands a value over to C, which gives it back with [`take`].
pub(crate) fn give<T>(value: T) -> *mut T {
    let origin = ProcessGuard::here();
    Box::into_raw(Box::new(Given { value, origin })).cast()
}

/// Takes back what [`give`] handed over; null is nothing.
///
/// # Safety
///
/// Promise 1 of the crate; the handle is not used after this.
pub(crate) unsafe fn take<T>(pointer: *mut T) -> Option<T> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: 1. it came from `give`, and comes back once.
    let given = unsafe { Box::from_raw(pointer.cast::<Given<T>>()) };
    Some(given.value)
}

/// A list of `count` entries; null stands for an empty one.
///
/// # Safety
///
/// Promise 3 of the crate, for as long as the list is used.
pub(crate) unsafe fn list<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: 3. is the caller's promise.
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// Copies `values` to a place with room for `capacity` of them, if that is enough; a null place of no room only asks.
///
/// # Safety
///
/// Promise 2 of the crate.
pub(crate) unsafe fn copy_out<T: Copy>(values: &[T], to: *mut T, capacity: usize) -> Result<(), Failure> {
    if to.is_null() {
        return match capacity {
            0 => Ok(()),
            _ => Err(Failure::null("buffer")),
        };
    }
    if values.len() > capacity {
        return Err(Failure::too_small(capacity, values.len()));
    }
    // SAFETY: 2. is the caller's promise, and the values fit.
    unsafe { to.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    Ok(())
}
