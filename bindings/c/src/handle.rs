//! Arguments from C: handles, out-pointers and lists. With [`text`] and [`structure`] these are the kinds of `call!`.

use std::ptr;
use std::slice;

use cachette::Error;
use cachette::fork::ProcessGuard;

use crate::failure::Failure;
use crate::guard::guard;
use crate::status::Status;
pub(crate) use crate::structure::{optional_structure, structure};
pub(crate) use crate::text::{buffer, optional_text, text};

/// What a handle points to.
#[repr(C)]
struct HandleValue<T> {
    /// The first field, so that its address is the handle.
    value: T,
    origin: ProcessGuard,
}

/// The value of an out-pointer when the call fails.
pub(crate) trait Empty: Copy {
    const EMPTY: Self;
}

macro_rules! empty {
    ($($number:ty = $empty:expr),*) => {
        $(impl Empty for $number {
            const EMPTY: Self = $empty;
        })*
    };
}

empty!(bool = false, u32 = 0, u64 = 0, usize = 0);

impl<T> Empty for *mut T {
    const EMPTY: Self = ptr::null_mut();
}

/// The value behind a handle. Fails if the handle is from before a fork.
///
/// # Safety
///
/// Promise 1 of the crate, for as long as the reference is used.
pub(crate) unsafe fn handle<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: 1. is the caller's promise, and `into_handle` made every handle.
    let found = unsafe { pointer.cast::<HandleValue<T>>().as_ref() };
    let found = found.ok_or_else(|| Failure::null(name))?;
    if found.origin.is_inherited() {
        return Err(Error::Forked.into());
    }
    Ok(&found.value)
}

/// The value behind a handle, also one from before a fork; for calls that check that themselves or only destroy.
///
/// # Safety
///
/// Promise 1 of the crate, for as long as the reference is used.
pub(crate) unsafe fn any_handle<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: 1. is the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::null(name))
}

/// An out-pointer. It is set to an empty value at once, so that a caller who ignores a failure reads no garbage.
///
/// # Safety
///
/// Promise 2 of the crate, for as long as the reference is used.
pub(crate) unsafe fn out<'a, T: Empty>(pointer: *mut T, name: &str) -> Result<&'a mut T, Failure> {
    if pointer.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: 2. is the caller's promise.
    unsafe { pointer.write(T::EMPTY) };
    // SAFETY: 2. is the caller's promise, and it was written above.
    Ok(unsafe { &mut *pointer })
}

/// Moves a value into a handle, which [`take`] or [`destroy`] consumes.
pub(crate) fn into_handle<T>(value: T) -> *mut T {
    let origin = ProcessGuard::here();
    Box::into_raw(Box::new(HandleValue { value, origin })).cast()
}

/// Moves the value out of a handle; `None` for null.
///
/// # Safety
///
/// Promise 1 of the crate; the handle is not used after this.
pub(crate) unsafe fn from_handle<T>(pointer: *mut T) -> Option<T> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: 1. it came from `into_handle`, and comes back once.
    let found = unsafe { Box::from_raw(pointer.cast::<HandleValue<T>>()) };
    Some(found.value)
}

/// The body of a C function that destroys a handle; null is ignored.
///
/// # Safety
///
/// As for [`from_handle`].
pub(crate) unsafe fn destroy<T>(pointer: *mut T) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        drop(unsafe { from_handle(pointer) });
        Ok(())
    })
}

/// A list of `count` entries; null is an empty one if `count` is 0.
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
