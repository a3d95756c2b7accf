//! Settings that the program changes while it runs.

use cachette_process as process;

use super::annotations::words;
use super::contents::Text;
use crate::arguments::User;
use crate::entry::guarded;

/// Applies a configuration text of PyTorch on all current and future devices. Returns `false` if Cachette refuses it, and
/// then changes nothing.
///
/// `write` gets the reason of the refusal, or the keys of PyTorch that Cachette lacks; it is not called if there are none.
///
/// # Safety
///
/// 1. The text may be read.
/// 2. `write` may be called with `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_configure(
    text: Text,
    write: unsafe extern "C-unwind" fn(user: User, text: *const u8, bytes: usize),
    user: User,
) -> bool {
    // SAFETY: 1. is the caller's promise.
    let text = unsafe { words(&text) };
    let updated = guarded(|| Ok(process::update_config(text)?));
    let (accepted, said) = match updated {
        Ok(left_out) => {
            let each = left_out.iter().map(|why| format!("Cachette goes on without this setting of PyTorch: {why}"));
            (true, each.collect::<Vec<_>>().join("\n"))
        }
        Err(error) => (false, error.to_string()),
    };
    if !said.is_empty() {
        // SAFETY: 2. is the caller's promise.
        unsafe { write(user, said.as_ptr(), said.len()) };
    }
    accepted
}
