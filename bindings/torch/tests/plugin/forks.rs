//! A child that was forked can use the device only if its parent had not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::{ptr, thread};

use cachette::Config;
use cachette_process::Error;
use cachette_torch::{cachette_torch_record_stream, cachette_torch_release_pool, cachette_torch_reset, counters};

use super::Case;
use super::bed::{self, DEFAULT, MIB, allocate, call, free};
use super::pools::POOL;

pub(crate) const CASES: &[Case] = &[
    ("a_child_of_a_parent_that_used_the_device_is_told_so", after_use),
    ("a_child_of_a_parent_that_only_started_may_use_the_device", before_use),
    ("a_child_does_not_wait_for_a_lock_of_its_parent", amid_calls),
];

/// Runs `work` in a child, and fails where it did.
pub(crate) fn in_child(work: impl FnOnce()) {
    // SAFETY: the child only runs `work` and leaves; the host's own allocator survives a fork.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "the system has room for a process");
    if child == 0 {
        let failed = catch_unwind(AssertUnwindSafe(work)).is_err();
        // SAFETY: it runs no handler of the parent's.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    let mut status = 0;
    // SAFETY: it writes one number.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0), "the child went well");
}

fn after_use() {
    bed::start("");
    let memory = allocate(MIB, 0, DEFAULT);
    in_child(|| {
        assert_eq!(cachette_process::allocator(0).unwrap_err(), Error::Forked);
        assert_eq!(cachette_process::allocator(1).unwrap_err(), Error::Forked);
        assert!(Error::Forked.to_string().contains("'spawn'"));
        assert_eq!(cachette_process::opened().count(), 0);
        assert!(allocate(MIB, 0, DEFAULT).is_null());
        free(memory, 0);
        call!(cachette_torch_record_stream(memory, ptr::null_mut()));
        cachette_torch_reset();
        call!(cachette_torch_release_pool(0, POOL));
        assert_eq!(counters(), cachette_torch::Counters::default(), "all silent");
    });
    free(memory, 0);
    assert_eq!(allocate(MIB, 0, DEFAULT), memory, "the parent goes on");
}

fn amid_calls() {
    bed::start("");
    let memory = allocate(MIB, 0, DEFAULT);
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                cachette_process::record_history(None);
                cachette_process::set_caching(true).unwrap();
            }
        });
        for _ in 0..100 {
            in_child(|| {
                // SAFETY: it ends a child that waits.
                unsafe { libc::alarm(20) };
                assert!(cachette_process::caches());
                assert!(!cachette_process::records_history());
                assert_eq!(cachette_process::set_caching(false).unwrap_err(), Error::Forked);
                cachette_process::record_history(None);
                assert_eq!(cachette_process::last_out_of_memory(), None);
            });
        }
        ended.store(true, Relaxed);
    });
    free(memory, 0);
}

fn before_use() {
    cachette_process::start("host", &Config::default()).unwrap();
    in_child(|| assert!(!allocate(MIB, 0, DEFAULT).is_null()));
    assert!(!allocate(MIB, 0, DEFAULT).is_null());
}
