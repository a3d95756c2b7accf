//! Forked children, each with a watchdog, and the threads that are busy meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// No child has to wait for anything: one that lives so long hangs. A child that is merely slow needs far less.
const SECONDS: u32 = 60;

/// Tells threads to stop when dropped. A test that fails drops it too, so that its threads do not go on.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs `work` in a child, and fails where it did or did not come back.
pub(crate) fn in_child(work: impl FnOnce()) {
    // SAFETY: the child only runs `work` and leaves; the host's own allocator survives a fork.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "the system has room for a process");
    if child == 0 {
        // SAFETY: the signal ends the process, as nothing handles it.
        unsafe { libc::alarm(SECONDS) };
        let failed = catch_unwind(AssertUnwindSafe(work)).is_err();
        // SAFETY: it runs no handler of the parent's.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    let mut status = 0;
    // SAFETY: it writes one number.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    let hung = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM;
    assert!(!hung, "the child hung");
    assert_eq!(status, 0, "the child failed or crashed");
}
