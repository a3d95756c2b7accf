//! Forked children, each with a watchdog.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// No child has to wait for anything, so one that lives so long waits for ever.
const SECONDS: u32 = 20;

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
