//! A stream that meets a pool while it falls asleep.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;

use cachette::Error;
use cachette::hal::{Call, CaptureMode, Device};
use cachette::history::HistoryOptions;
use cachette::pool::PoolProblem;
use cachette::sleep::Contents;
use cachette_hal_host::HostConfig;

use crate::fixture::threads::spin;
use crate::fixture::{ELASTIC, MIB, TestAllocator};

#[test]
fn z_a_sleeping_pool_serves_no_stream_that_it_met_while_it_fell_asleep() {
    const ROUNDS: u64 = 100;
    let host = HostConfig::default().capacity(1 << 40).phantom(true).stepped(3);
    let (test, hook) = TestAllocator::hooked(host, ELASTIC);
    let stream = test.stream();
    test.allocator.record_history(HistoryOptions::new());
    for _ in 0..20_000 {
        drop(test.allocator.create_pool().enter(&stream).unwrap());
    }
    let mut served = 0;
    let mut pools = Vec::new();
    for round in 0..ROUNDS {
        let pool = Arc::new(test.allocator.create_pool());
        let (also, other) = (Arc::clone(&pool), stream.clone());
        let (tell, told) = mpsc::channel();
        hook.set(Call::Wait, None, move || {
            let barrier = Arc::new(AtomicBool::new(false));
            let there = Arc::clone(&barrier);
            let thread = thread::spawn(move || {
                there.store(true, SeqCst);
                drop(also.enter(&other).unwrap());
            });
            while !barrier.load(SeqCst) {
                std::hint::spin_loop();
            }
            spin(round);
            tell.send(thread).unwrap();
        });
        pool.sleep(Contents::Discard).unwrap();
        told.recv().unwrap().join().unwrap();
        assert!(pool.is_asleep());
        served += usize::from(pool.allocate(MIB, &stream).is_ok());
        pools.push(pool);
    }
    assert_eq!(served, 0, "of {ROUNDS}");
}

#[test]
fn a_capture_that_begins_during_the_last_wait_of_a_sleep_is_seen() {
    let (test, hook) = TestAllocator::hooked(HostConfig::default(), ELASTIC);
    let stream = test.stream();
    let pool = test.allocator.create_pool();
    let memory = pool.allocate(2 * MIB, &stream).unwrap();
    let (device, handle, again) = (test.device.clone(), stream.handle(), Arc::clone(&hook));
    // The pool waits for its streams twice: before and after it stops serving requests.
    hook.set(Call::Wait, None, move || {
        again.set(Call::Wait, None, move || {
            // SAFETY: 1. the stream lives.
            unsafe { device.capture().unwrap().begin_capture(handle, CaptureMode::Relaxed) }.unwrap();
        });
    });
    let slept = pool.sleep(Contents::Keep);
    assert!(matches!(slept, Err(Error::Pool { why: PoolProblem::Captured, .. })), "{slept:?}");
    assert!(test.is_captured(&stream), "the capture is whole");
    let capture = test.device.capture().unwrap();
    // SAFETY: 1. the stream lives.
    let graph = unsafe { capture.end_capture(stream.handle()) }.unwrap();
    // SAFETY: 1. it was captured just now.
    unsafe { capture.destroy_graph(graph) }.unwrap();
    drop(memory);
}
