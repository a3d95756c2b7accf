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

/// Notes that a case was abandoned with its thread.
pub(crate) fn note_hang() {
    // Relaxed: the flag publishes nothing but itself.
    HUNG.store(true, Ordering::Relaxed);
}

/// Ends the process with this code, without running destructors, if a case of it hung.
///
/// The thread of that case is still inside the driver, whose destructors would crash. Every `main` calls it last, with
/// the code that it ends with.
pub fn leave_if_hung(code: u8) {
    // Relaxed: the flag publishes nothing but itself.
    if HUNG.load(Ordering::Relaxed) {
        // Whether or not the last lines get out, the code does.
        let _ = io::stdout().flush();
        let _ = io::stderr().flush();
        _exit(code.into());
    }
}
