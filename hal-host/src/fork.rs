//! Detection of a forked child, which has the memory but not the worker threads.

use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// The forks that led to this process. Relaxed: it changes only while a child has one thread.
static FORKS: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

extern "C" fn count() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Records the process in which it was created.
#[derive(Debug)]
pub(crate) struct ForkGuard(u32);

impl ForkGuard {
    pub(crate) fn new() -> Self {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            // It fails only without memory for a few bytes.
            // SAFETY: the handler only counts, which a child may do.
            let _ = unsafe { pthread_atfork(None, None, Some(count)) };
        });
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Returns whether this is a child of the process that created the guard.
    pub(crate) fn is_child(&self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.0
    }
}
