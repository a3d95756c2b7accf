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

use crate::fixture::threads::{is_waiting, spin, start};
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
    test.end_unannounced(&stream);
    drop(memory);
}

#[test]
fn a_sleep_waits_for_no_capture_of_freed_memory() {
    let (test, [stream, side]) = TestAllocator::with(ELASTIC).with_streams();
    let pool = test.allocator.create_pool();
    let [memory, kept] = [(); 2].map(|()| pool.allocate(2 * MIB, &stream).unwrap());
    test.begin_unannounced(&side, CaptureMode::Relaxed);
    memory.record_stream(&side);
    drop(memory);
    assert!(pool.sleep(Contents::Keep).is_err(), "the captured use has not ended");
    assert!(test.is_captured(&side), "the capture is whole");
    test.end_unannounced(&side);
    pool.sleep(Contents::Keep).expect("nothing uses it any more");
    drop(kept);
}

#[test]
fn a_request_that_a_sleep_overtakes_says_that_the_pool_sleeps() {
    let (test, hook) = TestAllocator::hooked(HostConfig::default().capacity(16 * MIB), ELASTIC);
    let (stream, pool) = (test.stream(), Arc::new(test.allocator.create_pool()));
    let memory = pool.allocate(2 * MIB, &stream).unwrap();
    let sleeper = Arc::clone(&pool);
    let slept = hook.start(Call::CreateBacking, None, move || sleeper.sleep(Contents::Keep).map(drop));
    let answer = pool.allocate(16 * MIB, &stream);
    slept.result().unwrap();
    assert!(matches!(answer, Err(Error::Pool { why: PoolProblem::Asleep, .. })), "{answer:?}");
    drop(memory);
}

#[test]
fn a_request_that_waited_while_the_pool_fell_asleep_adds_no_memory() {
    let (test, hook) = TestAllocator::hooked(HostConfig::default(), ELASTIC);
    let (stream, pool) = (test.stream(), Arc::new(test.allocator.create_pool()));
    let memory = pool.allocate(2 * MIB, &stream).unwrap();
    let (tell, told) = mpsc::channel();
    let [asker, sleeper] = [(); 2].map(|()| Arc::clone(&pool));
    let same = stream.clone();
    hook.set(Call::CreateBacking, None, move || {
        let late = start(move || asker.allocate(4 * MIB, &same).map(drop));
        assert!(is_waiting(&late), "the first request adds memory");
        let slept = start(move || sleeper.sleep(Contents::Keep).map(drop));
        assert!(is_waiting(&slept), "the first request adds memory");
        tell.send((late, slept)).unwrap();
    });
    let first = pool.allocate(4 * MIB, &stream);
    let (late, slept) = told.recv().unwrap();
    slept.recv().expect("it ends").expect("it can sleep");
    let late = late.recv().expect("it ends");
    assert!(matches!(late, Err(Error::Pool { why: PoolProblem::Asleep, .. })), "{late:?}");
    assert_eq!(test.device.physical_bytes(), 0);
    drop((first, memory));
}

#[test]
fn a_sleep_waits_for_freed_memory_that_another_allocators_stream_uses() {
    let (test, [stream]) = TestAllocator::with(ELASTIC).with_streams();
    let (foreign, pool) = (test.beside("").stream(), test.allocator.create_pool());
    let [memory, kept] = [(); 2].map(|()| pool.allocate(2 * MIB, &stream).unwrap());
    let hold = test.hold(&foreign);
    test.fill(&memory, 7, &foreign);
    memory.record_stream(&foreign);
    drop(memory);
    let sleeping = start(move || pool.sleep(Contents::Keep).map(|_| pool));
    assert!(is_waiting(&sleeping), "the fill has not run");
    hold.release();
    let pool = sleeping.recv().expect("it ends").expect("it can sleep");
    foreign.synchronize().expect("the fill found its memory");
    drop((kept, pool));
}
