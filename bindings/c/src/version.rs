//! The versions of the library and of the header.

use std::ffi::{CStr, c_char};

/// The version of this header. It increases with every added function or field. None is removed or changed under the
/// same SONAME.
pub const CACHETTE_API_VERSION: u32 = 5;

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no zero inside"),
};

/// The library's version, such as `0.1.0`; a static string.
#[unsafe(no_mangle)]
pub extern "C" fn cachette_version() -> *const c_char {
    VERSION.as_ptr()
}

/// The header version of the library. The library has all declarations of this header if it is at least
/// `CACHETTE_API_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn cachette_api_version() -> u32 {
    CACHETTE_API_VERSION
}
