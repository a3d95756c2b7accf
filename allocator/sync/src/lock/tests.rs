//! One thread at a time holds the lock, for any owner and after any number of changes of the owner.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use crate::lock::*;

/// How many turns in a row are more than enough to become the owner.
const MANY: u64 = 200;

/// Adds to a plain number, so that two threads inside at once lose something.
fn add(total: &Lock<u64>, times: u64) {
    for _ in 0..times {
        *total.lock() += 1;
    }
}

/// Whether this thread would enter as the owner.
fn owns<T>(lock: &Lock<T>) -> bool {
    // SAFETY: the raw lock is only looked at.
    let raw = unsafe { lock.raw() };
    let mine = ptr::from_ref(crate::thread::slot()).cast_mut();
    raw.bias.biased_to.load(SeqCst) == mine
}

#[test]
fn threads_take_turns() {
    let total = Lock::new(0_u64);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| add(&total, 10_000));
        }
    });
    assert_eq!(*total.lock(), 40_000);
}

#[test]
fn the_first_taker_owns_the_lock_until_another_comes() {
    let total = Lock::new(0_u64);
    assert!(!owns(&total));
    add(&total, 1);
    assert_eq!(owns(&total), asymmetric_fence::is_available());
    thread::scope(|scope| {
        scope.spawn(|| {
            add(&total, 1);
            assert!(!owns(&total));
            add(&total, MANY);
            assert_eq!(owns(&total), asymmetric_fence::is_available());
        });
    });
    add(&total, 1);
    assert!(!owns(&total));
    assert_eq!(*total.lock(), MANY + 3);
}

#[test]
fn every_change_of_owner_takes_twice_the_patience() {
    let total = Lock::new(0_u64);
    add(&total, 1);
    for turns in [64, 128, 256] {
        thread::scope(|scope| {
            scope.spawn(|| add(&total, 1));
        });
        add(&total, turns);
        assert!(!owns(&total), "after {turns}");
        add(&total, 1);
        assert_eq!(owns(&total), asymmetric_fence::is_available(), "after {turns}");
    }
}

#[test]
fn waits_begin_longer_while_threads_crowd() {
    let total = Lock::new(0_u64);
    // SAFETY: the raw lock is only looked at.
    let crowd = || unsafe { total.raw() }.contended.crowd.load(SeqCst);
    add(&total, 1);
    thread::scope(|scope| {
        scope.spawn(|| add(&total, 1));
    });
    // A waiting thread cannot be seen, so it may come too late; then it comes again.
    while crowd() < 2 {
        thread::scope(|scope| {
            let inside = total.lock();
            let (started, starts) = mpsc::channel();
            let total = &total;
            scope.spawn(move || {
                started.send(()).unwrap();
                add(total, 1);
            });
            starts.recv().unwrap();
            thread::sleep(Duration::from_millis(1));
            drop(inside);
        });
    }
    add(&total, 2000);
    assert_eq!(crowd(), 0);
}

#[test]
fn a_second_thread_waits_for_the_owner_inside() {
    let total = Lock::new(0_u64);
    let left = AtomicBool::new(false);
    add(&total, 1);
    let (ready, go) = mpsc::channel();
    thread::scope(|scope| {
        let mut inside = total.lock();
        let (total, left) = (&total, &left);
        scope.spawn(move || {
            assert!(total.try_lock().is_none());
            ready.send(()).unwrap();
            let guard = total.lock();
            assert!(left.load(SeqCst), "the owner was still inside");
            assert_eq!(*guard, 7);
        });
        go.recv().unwrap();
        thread::sleep(Duration::from_millis(20));
        *inside = 7;
        left.store(true, SeqCst);
        drop(inside);
    });
    assert_eq!(*total.lock(), 7);
}

#[test]
fn a_thread_may_be_inside_two_locks() {
    let (one, two) = (Lock::new(1_u64), Lock::new(2_u64));
    add(&one, 1);
    add(&two, 1);
    for _ in 0..MANY {
        let mut first = one.lock();
        let second = two.lock();
        assert!(one.try_lock().is_none() && two.try_lock().is_none());
        *first += *second;
        drop(first);
        assert!(two.try_lock().is_none());
    }
    assert_eq!(*one.lock(), 2 + 3 * MANY);
}

#[test]
fn a_panic_inside_leaves_the_lock() {
    let total = Lock::new(0_u64);
    add(&total, 1);
    for _ in 0..2 {
        let panicked = thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                let mut guard = total.lock();
                *guard += 1;
                std::panic::resume_unwind(Box::new("inside"));
            });
            panicking.join()
        });
        assert!(panicked.is_err());
        add(&total, MANY);
    }
    assert_eq!(*total.lock(), 3 + 2 * MANY);
}

#[test]
fn owners_change_by_phases_and_lose_nothing() {
    let total = Lock::new(0_u64);
    let phase = Barrier::new(3);
    thread::scope(|scope| {
        for me in 0..3 {
            let (total, phase) = (&total, &phase);
            scope.spawn(move || {
                for round in 0..30_u64 {
                    if round % 3 == me {
                        add(total, 50 * round);
                    }
                    phase.wait();
                }
            });
        }
    });
    assert_eq!(*total.lock(), (0..30).map(|round| 50 * round).sum::<u64>());
}

#[test]
fn visitors_come_at_any_moment_and_nothing_is_lost() {
    for pause in [0, 1, 50, 3000] {
        let total = Lock::new(0_u64);
        let stop = AtomicBool::new(false);
        let (worked, visited) = thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let mut turns = 0_u64;
                while !stop.load(SeqCst) {
                    add(&total, 100);
                    turns += 100;
                }
                turns
            });
            let visitor = scope.spawn(|| {
                for _ in 0..2000 {
                    add(&total, 1);
                    for _ in 0..pause {
                        std::hint::spin_loop();
                    }
                }
                2000
            });
            let visited = visitor.join().unwrap();
            stop.store(true, SeqCst);
            (worker.join().unwrap(), visited)
        });
        assert_eq!(*total.lock(), worked + visited, "pause {pause}");
    }
}

#[test]
fn a_thread_inside_one_lock_does_not_become_the_owner_of_another() {
    let (outer, inner) = (Lock::new(0_u64), Lock::new(0_u64));
    add(&outer, MANY);
    if !owns(&outer) {
        // Without the barrier of the kernel, no lock has an owner.
        return;
    }
    let held = outer.lock();
    add(&inner, MANY);
    assert!(!owns(&inner), "its slot says that it is inside the other lock");
    drop(held);
    // The mark of the outer lock was not lost: it can be taken by another thread.
    thread::scope(|scope| scope.spawn(|| add(&outer, 1)).join().expect("it ends"));
    add(&inner, MANY);
    assert!(owns(&inner));
}
