//! Splits that are switched while other settings change.

use std::sync::Barrier;
use std::thread;

use cachette_hal_host::HostConfig;

use crate::fixture::threads::spin;
use crate::fixture::{KIB, MIB, TestAllocator, config};

#[test]
fn a_pool_that_does_not_split_stays_so_while_the_configuration_is_replaced() {
    const ROUNDS: u64 = 200;
    let host = HostConfig::default().capacity(1 << 40).phantom(true).stepped(3);
    let (test, [stream]) = &TestAllocator::on(host, "").with_streams::<1>();
    let barrier = &Barrier::new(3);
    let pool = &test.allocator.create_pool();
    let mut wrong = 0;
    let _many: Vec<_> = (0..20_000).map(|_| pool.allocate(KIB, stream).unwrap()).collect();
    thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..ROUNDS {
                barrier.wait();
                spin(100);
                test.allocator.set_config(&config(""));
                barrier.wait();
                barrier.wait();
            }
        });
        // The walk locks the heap for long.
        scope.spawn(move || {
            for _ in 0..ROUNDS {
                barrier.wait();
                let _ = test.allocator.check();
                barrier.wait();
                barrier.wait();
            }
        });
        for _ in 0..ROUNDS {
            barrier.wait();
            spin(200);
            pool.set_no_split(true);
            barrier.wait();
            // All calls have returned.
            let before = pool.stats().segments;
            let memory = [(); 2].map(|()| pool.allocate(4 * MIB, stream).unwrap());
            wrong += usize::from(pool.stats().segments < before + 2);
            drop(memory);
            pool.empty_cache().unwrap();
            pool.set_no_split(false);
            barrier.wait();
        }
    });
    assert_eq!(wrong, 0, "shared segments of a pool that does not split, of {ROUNDS}");
}

#[test]
fn all_streams_of_a_pool_agree_after_two_threads_switched_its_splits() {
    const ROUNDS: u64 = 3000;
    let host = HostConfig::default().capacity(1 << 40).phantom(true).stepped(3);
    let (test, streams) = &TestAllocator::on(host, "").with_streams::<64>();
    let barrier = &Barrier::new(2);
    let pool = &test.allocator.create_pool();
    let (mut mixed, mut on, mut off) = (0, 0, 0);
    for stream in streams {
        drop(pool.enter(stream).unwrap());
    }
    thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..ROUNDS {
                barrier.wait();
                spin(round % 16);
                pool.set_no_split(true);
                barrier.wait();
                barrier.wait();
            }
        });
        for _ in 0..ROUNDS {
            barrier.wait();
            pool.set_no_split(false);
            barrier.wait();
            // Both calls have returned.
            let memory = [0, 0, 63, 63].map(|at: usize| pool.allocate(4 * MIB, &streams[at]).unwrap());
            match pool.stats().segments {
                2 => off += 1,
                4 => on += 1,
                _ => mixed += 1,
            }
            drop(memory);
            pool.empty_cache().unwrap();
            barrier.wait();
        }
    });
    assert_eq!(mixed, 0, "rounds in which one stream splits and another does not, of {ROUNDS}; {on} {off}");
}
