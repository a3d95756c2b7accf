//! Exit of a process in which a case hung.

use std::ffi::c_int;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

unsafe extern "C" {
    /// Ends the process at once.
    safe fn _exit(code: c_int) -> !;
}

/// Whether a thread of a case may still be inside the driver.
static HUNG: AtomicBool = AtomicBool::new(false);

/// Records that a case was abandoned with its thread.
pub(crate) fn note_hang() {
    // Relaxed: the flag publishes no other data.
    HUNG.store(true, Ordering::Relaxed);
}

/// Returns whether a case was abandoned with its thread.
pub(crate) fn has_hung() -> bool {
    // Relaxed: the flag publishes no other data.
    HUNG.load(Ordering::Relaxed)
}

/// Ends the process with this code, without running destructors, if a case hung.
///
/// The thread of that case is still inside the driver, whose destructors would crash. Every `main` calls it last, with
/// its exit code.
pub fn exit_if_hung(code: u8) {
    if has_hung() {
        exit_now(code);
    }
}

/// Ends the process with this code, without running destructors.
pub(crate) fn exit_now(code: u8) -> ! {
    // The exit code counts even if the last lines cannot be written.
    let _ = io::stdout().flush();
    let _ = io::stderr().flush();
    _exit(code.into())
}
