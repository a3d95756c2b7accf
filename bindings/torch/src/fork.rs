//! What a fork means: a driver does not survive it.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether this process, or one before it, has used the driver.
///
/// Relaxed, both: a child sees what its parent's forking thread saw.
static USED: AtomicBool = AtomicBool::new(false);
/// Whether this process is the child of one that had.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Notes that the driver is used from now on.
pub(crate) fn driver_is_used() {
    USED.store(true, Relaxed);
}

/// Whether the driver is of no use any more, because the process was forked after its first use.
#[inline]
pub(crate) fn is_forked() -> bool {
    FORKED.load(Relaxed)
}

/// Lets every child notice that it is one.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // It fails for want of memory alone; then a child finds out from its driver.
        // SAFETY: the handler is a function of this library, and touches nothing but two flags.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(child)) };
    });
}

/// Runs in every child, before `fork` returns there.
unsafe extern "C" fn child() {
    if USED.load(Relaxed) {
        FORKED.store(true, Relaxed);
    }
}
