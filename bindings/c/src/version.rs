//! Which library this is.

use std::ffi::{CStr, c_char};

/// The version of this header. It grows with every function or field that is added; none is ever taken away or changed
/// under the same SONAME.
pub const CACHETTE_API_VERSION: u32 = 2;

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no zero inside"),
};

/// The library's version, such as `0.1.0`; the text lives for ever.
#[unsafe(no_mangle)]
pub extern "C" fn cachette_version() -> *const c_char {
    VERSION.as_ptr()
}

/// The header's version that the library was built with: at least `CACHETTE_API_VERSION`, if the library has all that
/// this header declares.
#[unsafe(no_mangle)]
pub extern "C" fn cachette_api_version() -> u32 {
    CACHETTE_API_VERSION
}
