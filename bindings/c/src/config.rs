//! The configuration of an allocator, as text.

use std::ffi::c_char;

use crate::allocator::{AllocatorHandle, config_of};
use crate::given::handle;
use crate::guard::guard;
use crate::status::Status;
use crate::text;

/// Writes the configuration as text, with a final zero, into a buffer of `capacity` bytes, and how many bytes that
/// needs. NULL with a capacity of 0 only asks. The text names what differs from the default, and can be set again.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_config(
    allocator: *const AllocatorHandle,
    buffer: *mut c_char,
    capacity: usize,
    out_needed: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let config = unsafe { handle(allocator, "allocator") }?.inner.config();
        // SAFETY: 2. is the caller's promise.
        unsafe { text::write(&config.to_string(), buffer, capacity, out_needed) }
    })
}

/// Behaves as the text says from now on; what it does not name becomes the default. NULL takes the configuration of
/// the environment. After a failure nothing has changed.
///
/// Bounds on memory are not part of it: see `cachette_set_memory_limit`.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_set_config(allocator: *mut AllocatorHandle, config: *const c_char) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let allocator = unsafe { handle(allocator, "allocator") }?;
        // SAFETY: 3. is the caller's promise.
        let config = config_of(unsafe { text::optional(config, "config") }?)?;
        allocator.inner.set_config(&config);
        Ok(())
    })
}
