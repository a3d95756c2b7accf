//! Routes that begin and end on several threads at once.

use std::sync::Barrier;
use std::thread;

use cachette::hal::{CaptureMode, StreamRef};
use cachette::history::HistoryOptions;
use cachette::pool::Filter;
use cachette_hal_host::HostConfig;

use crate::fixture::threads::spin;
use crate::fixture::{MIB, Stream, TestAllocator};

/// An allocator with many streams, so that their heaps take long to learn of a route. The device has no threads.
fn many_streams() -> (TestAllocator, [Stream; 64]) {
    TestAllocator::on(HostConfig::default().capacity(1 << 40).phantom(true).stepped(3), "").with_streams()
}

#[test]
fn p12_captures_of_several_threads_get_memory_of_their_pools() {
    let (test, streams) = many_streams();
    let capture = |stream| {
        let mut wrong = 0;
        for _ in 0..2000 {
            let pool = test.allocator.create_capture_pool();
            let capture = pool.begin_capture(stream, CaptureMode::Relaxed).unwrap();
            let memory = test.allocate(MIB, stream);
            wrong += usize::from(pool.stats().allocations == 0);
            drop(capture.end().unwrap());
            drop(memory);
        }
        wrong
    };
    let wrong: usize = thread::scope(|scope| {
        let capture = &capture;
        let threads: Vec<_> = streams[58..].iter().map(|stream| scope.spawn(move || capture(stream))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(wrong, 0, "requests of captured streams that the default pool served");
}

#[test]
fn p5_a_route_leads_although_another_one_ends_at_the_same_time() {
    const ROUNDS: usize = 20_000;
    let (test, streams) = many_streams();
    let [mine, other] = [test.allocator.create_pool(), test.allocator.create_pool()];
    let barrier = Barrier::new(2);
    let (test, barrier, other, mine) = (&test, &barrier, &other, &mine);
    let mut missed = 0;
    thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..ROUNDS {
                test.allocator.begin_allocate_to_pool(other.id(), Filter::Stream(StreamRef::DEFAULT)).unwrap();
                barrier.wait();
                test.allocator.end_allocate_to_pool(other.id()).unwrap();
                barrier.wait();
                barrier.wait();
            }
        });
        for _ in 0..ROUNDS {
            barrier.wait();
            test.allocator.begin_allocate_to_pool(mine.id(), Filter::All).unwrap();
            barrier.wait();
            // Both calls have returned, so only this route exists.
            let memory = [0, 63].map(|stream| test.allocate(MIB, &streams[stream]));
            missed += memory.len() as u64 - mine.stats().allocations;
            drop(memory);
            test.allocator.end_allocate_to_pool(mine.id()).unwrap();
            barrier.wait();
        }
    });
    assert_eq!(missed, 0, "so many requests of {ROUNDS} rounds were not routed to the pool");
}

/// An allocator whose pools take long to be entered for the first time: its history knows many of them.
fn with_long_history() -> (TestAllocator, [Stream; 1]) {
    let host = HostConfig::default().capacity(1 << 40).phantom(true).stepped(3);
    let (test, streams) = TestAllocator::on(host, "").with_streams::<1>();
    test.allocator.record_history(HistoryOptions::new());
    for _ in 0..10_000 {
        drop(test.allocator.create_pool().enter(&streams[0]).expect("it is there"));
    }
    (test, streams)
}

#[test]
fn p4_a_pool_serves_its_requests_although_a_route_began_when_it_got_its_heap() {
    const ROUNDS: u64 = 200;
    let (test, [stream]) = &with_long_history();
    let barrier = &Barrier::new(2);
    let other = &test.allocator.create_pool();
    let (mut wrong, mut pools) = (0, Vec::new());
    thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..ROUNDS {
                barrier.wait();
                spin(round);
                test.allocator.begin_allocate_to_pool(other.id(), Filter::All).unwrap();
                barrier.wait();
                barrier.wait();
                test.allocator.end_allocate_to_pool(other.id()).unwrap();
            }
        });
        for _ in 0..ROUNDS {
            let pool = test.allocator.create_pool();
            barrier.wait();
            drop(pool.enter(stream).unwrap());
            barrier.wait();
            // Both calls have returned.
            let memory = pool.allocate(MIB, stream).unwrap();
            wrong += usize::from(pool.stats().allocations == 0);
            barrier.wait();
            drop(memory);
            pools.push(pool);
        }
    });
    assert_eq!(wrong, 0, "requests to a pool that another pool served, of {ROUNDS}");
}
