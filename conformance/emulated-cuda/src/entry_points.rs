//! Functions by name, and what the library tells tests about itself.

use std::ffi::{CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::{mem, ptr};

use crate::prelude::*;

/// `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`.
const NO_SYMBOL: c_uint = 1;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: c_ulonglong = 2;
/// Finds a library that is loaded already.
const RTLD_NOLOAD_LAZY: c_int = 5;

/// `Dl_info`.
#[repr(C)]
struct Place {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

unsafe extern "C" {
    fn dladdr(address: *const c_void, place: *mut Place) -> c_int;
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, symbol: *const c_char) -> *mut c_void;
}

/// A function of this library; null if there is none. The global scope may have another one of the same name.
fn find(name: &str) -> *mut c_void {
    let Ok(name) = CString::new(name) else { return ptr::null_mut() };
    // SAFETY: a structure of null pointers is valid.
    let mut place: Place = unsafe { mem::zeroed() };
    let own: *const c_void = find as fn(&str) -> *mut c_void as *const c_void;
    // SAFETY: the loader writes one structure.
    if unsafe { dladdr(own, &raw mut place) } == 0 {
        return ptr::null_mut();
    }
    // SAFETY: the loader's own string, which lives as long as this library.
    let library = unsafe { dlopen(place.file, RTLD_NOLOAD_LAZY) };
    if library.is_null() {
        return library;
    }
    // SAFETY: it was opened above, and the name ends with a zero.
    unsafe { dlsym(library, name.as_ptr()) }
}

/// # Safety
///
/// `symbol` is null or a string.
unsafe fn look_up(symbol: *const c_char, flags: c_ulonglong) -> Answer<*mut c_void> {
    refuse_if(symbol.is_null(), INVALID_VALUE)?;
    // SAFETY: it is not null, and otherwise the caller's promise.
    let name = unsafe { std::ffi::CStr::from_ptr(symbol) }.to_str().map_err(|_| INVALID_VALUE)?;
    let suffixes: &[&str] = if flags & PER_THREAD == 0 { &["_v2", ""] } else { &["_v2_ptsz", "_ptsz", "_v2", ""] };
    let found = suffixes.iter().map(|suffix| find(&format!("{name}{suffix}"))).find(|found| !found.is_null());
    found.ok_or(NOT_FOUND)
}

abi! {
    /// A function by its name without a version.
    fn cuGetProcAddress(
        symbol: *const c_char,
        function: *mut *mut c_void,
        _version: c_int,
        flags: c_ulonglong,
    ) => function {
        // SAFETY: the caller's promise.
        unsafe { look_up(symbol, flags) }
    }

    /// The same, with a reason.
    fn cuGetProcAddress_v2(
        symbol: *const c_char,
        function: *mut *mut c_void,
        _version: c_int,
        flags: c_ulonglong,
        reason: *mut c_uint,
    ) => function {
        // SAFETY: the caller's promise.
        let found = unsafe { look_up(symbol, flags) };
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(reason, if found.is_ok() { 0 } else { NO_SYMBOL }) };
        found
    }
}

/// How many pieces of device memory the library has given out and not got back.
#[unsafe(no_mangle)]
extern "C" fn cachette_emulated_allocations() -> u64 {
    driver().map_or(0, |driver| driver.ledger.ranges.lock().len() as u64)
}
