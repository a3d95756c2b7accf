//! Forks at any moment, while other threads hold any lock.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use cachette::Config;

use super::child::{Stop, in_child};
use super::held::{BYTES, Held, config};
use super::refusals::do_everything;

/// How often is forked.
const FORKS: usize = 200;

/// Allocates and frees in every way until `stop` is set.
fn keep_busy(held: &Held, stop: &AtomicBool) {
    let Held { allocator, pool, .. } = held;
    let stream = allocator.create_stream().unwrap();
    let cache = allocator.allocate_growable(1 << 30, &stream).unwrap();
    for round in 0_u64.. {
        if stop.load(Relaxed) {
            return;
        }
        let bytes = 512 << (round % 12);
        // One stream that all threads share, and one of this thread's own.
        let shared = allocator.allocate(bytes, &held.stream).unwrap();
        let own = allocator.allocate(bytes, &stream).unwrap();
        own.record_stream(&held.stream);
        let pooled = pool.allocate(BYTES, &stream).unwrap();
        drop((shared, own, pooled));
        drop(allocator.pinned().allocate(4096).unwrap());
        cache.commit(0..bytes).unwrap();
        cache.decommit(0..bytes).unwrap();
        held.growable.record_stream(&stream);
        if round.is_multiple_of(64) {
            drop(thread::spawn(|| {}).join());
            drop(allocator.create_pool());
            drop(held.asleep.make_resident().unwrap());
            allocator.evict(1).unwrap();
            assert!(allocator.stats().allocation.all.current > 0);
            allocator.set_config(&config("max_split_size_mb:64"));
            allocator.set_config(&Config::default());
            allocator.empty_cache().unwrap();
        }
    }
}

#[test]
fn no_child_waits_for_what_other_threads_held_at_the_fork() {
    let held = Held::new();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for _ in 0..3 {
            scope.spawn(|| keep_busy(&held, &stop));
        }
        for _ in 0..FORKS {
            in_child(|| {
                // SAFETY: the threads that share it are not in this process, which leaves without dropping it again.
                do_everything(unsafe { ptr::read(&raw const held) });
            });
        }
    });
    held.assert_returns_everything();
}
