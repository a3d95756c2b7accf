//! Annotations, metadata and compile contexts of a thread.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::slice;
use std::str;

use cachette::hal::Ordinal;
use cachette::history::{self, Context, Stage};

use super::contents::Text;
use crate::arguments::User;
use crate::entry::{ask_owner, guarded};

thread_local! {
    /// The compile contexts of this thread, the innermost last.
    static CONTEXTS: RefCell<Vec<Context>> = const { RefCell::new(Vec::new()) };
}

/// Sets the metadata of this thread's events.
///
/// # Safety
///
/// 1. The text may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_set_metadata(text: Text) {
    // SAFETY: 1. is the caller's promise.
    let text = unsafe { words(&text) };
    let _ = guarded(|| {
        history::set_metadata(text);
        Ok(())
    });
}

/// Passes the metadata of this thread's events to `write`.
///
/// # Safety
///
/// 1. `write` may be called with `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_metadata(
    write: unsafe extern "C-unwind" fn(user: User, text: *const u8, bytes: usize),
    user: User,
) {
    let text = guarded(|| Ok(history::metadata())).unwrap_or_default();
    // SAFETY: 1. is the caller's promise.
    unsafe { write(user, text.as_ptr(), text.len()) };
}

/// Adds a compile context to this thread's events, until [`cachette_adapter_leave_context`].
///
/// # Safety
///
/// 1. The text may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_enter_context(text: Text) {
    // SAFETY: 1. is the caller's promise.
    let text = unsafe { words(&text) };
    let _ = guarded(|| {
        // While the thread ends, the list may be gone.
        let _ = CONTEXTS.try_with(|contexts| contexts.borrow_mut().push(history::enter_context(text)));
        Ok(())
    });
}

/// Removes the last compile context of this thread.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_leave_context() {
    let _ = guarded(|| {
        let _ = CONTEXTS.try_with(|contexts| drop(contexts.borrow_mut().pop()));
        Ok(())
    });
}

/// Records an annotation on a device.
///
/// # Safety
///
/// 1. The text may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_annotate(name: Text, begins: bool, device: c_int) {
    // SAFETY: 1. is the caller's promise.
    let name = unsafe { words(&name) };
    let stage = if begins { Stage::Start } else { Stage::End };
    let _ = guarded(|| {
        let device = Ordinal(u32::try_from(device).unwrap_or(0));
        history::annotate(name, stage, device);
        Ok(())
    });
}

/// Records an event that adds metadata to the memory in use that begins at an address. Memory of others is ignored.
///
/// # Safety
///
/// 1. The text may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_annotate_memory(ptr: *mut c_void, text: Text) {
    // SAFETY: 1. is the caller's promise.
    let text = unsafe { words(&text) };
    let _ = guarded(|| ask_owner(|allocator| allocator.annotate(ptr as u64, text)));
}

/// Returns the caller's text; empty if it is not UTF-8.
///
/// # Safety
///
/// 1. The text may be read as long as the result is used.
pub(super) unsafe fn words(text: &Text) -> &str {
    if text.bytes == 0 {
        return "";
    }
    // SAFETY: 1. is the caller's promise.
    let bytes = unsafe { slice::from_raw_parts(text.start, text.bytes) };
    str::from_utf8(bytes).unwrap_or_default()
}
