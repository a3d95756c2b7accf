//! The configuration of an allocator, as text.

use std::ffi::c_char;

use crate::allocator::{AllocatorHandle, config_of};
use crate::guard::{call, promises};
use crate::status::Status;

/// Writes the configuration as text with a final zero into a buffer of `capacity` bytes, and the number of bytes
/// needed. Pass NULL and 0 to get only that number. The text has the settings that differ from the default, and can be
/// passed to `cachette_set_config`.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_config(
    allocator: *const AllocatorHandle,
    buffer: *mut c_char,
    capacity: usize,
    out_needed: *mut usize,
) -> Status {
    call!(
        [handle(allocator), buffer(buffer, capacity, out_needed)],
        buffer.write(&allocator.inner.config().to_string())?
    )
}

/// Replaces the configuration. Settings that the text does not name get their defaults. NULL reads the environment. A
/// failure changes nothing.
///
/// Memory limits are not part of it: see `cachette_set_memory_limit`.
#[doc = promises!("1 and 3")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_set_config(allocator: *mut AllocatorHandle, config: *const c_char) -> Status {
    call!([handle(allocator), optional_text(config)], allocator.inner.set_config(&config_of(config)?))
}
