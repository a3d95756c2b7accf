//! Calls on a sleeping pool: from its buffers, from progress callbacks, from other heaps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use cachette::Buffer;
use cachette::hal::{Call, ErrorKind};
use cachette::pool::PoolProblem;
use cachette::sleep::{Contents, Progress};
use cachette_hal_host::HostConfig;

use crate::fixture::threads::in_time;
use crate::fixture::{MIB, Pool, Stream, TestAllocator};
use crate::sleep::{assert_asleep_sound, assert_filled, filled, problem};

const BYTES: usize = 5 << 20;

fn test() -> TestAllocator {
    TestAllocator::elastic_on(HostConfig::default(), "")
}

/// A buffer of a pool, filled with `byte`.
fn buffer(test: &TestAllocator, pool: &Pool, stream: &Stream, byte: u8) -> Buffer<u8> {
    let _inside = pool.enter(stream).expect("a thread may enter");
    let mut buffer = test.allocator.allocate_buffer::<u8>(BYTES, stream).expect("there is room");
    buffer.fill(byte).expect("a fill is queued");
    buffer
}

fn assert_holds(buffer: &Buffer<u8>, byte: u8) {
    let read = buffer.read().expect("it can be read");
    assert!(read.iter().all(|read| *read == byte));
}

#[test]
fn a_progress_function_that_panics_loses_nothing() {
    for waking in [false, true] {
        for done in [2 * MIB, 8 * MIB, 16 * MIB] {
            let test = test();
            let (stream, pool, memory) = filled(&test);
            let panics = |progress: Progress| assert!(progress.done < done, "as it should");
            if waking {
                pool.sleep(Contents::Keep).expect("it can sleep");
            }
            let changed = catch_unwind(AssertUnwindSafe(|| {
                if waking {
                    pool.wake_with(panics).map(|_| ())
                } else {
                    pool.sleep_with(Contents::Keep, panics).map(|_| ())
                }
            }));
            assert!(changed.is_err(), "the panic goes on");
            assert!(pool.is_asleep(), "it serves only once it is whole");
            assert_asleep_sound(&test);
            pool.wake().expect("it goes on from there");
            assert_filled(&test, &memory, &stream);
            test.assert_elastic_sound();
            test.assert_returns_everything_after((memory, pool, stream));
        }
    }
}

#[test]
fn a_pool_that_a_panic_left_asleep_may_go() {
    let test = test();
    let (stream, pool, memory) = filled(&test);
    let changed = catch_unwind(AssertUnwindSafe(|| pool.sleep_with(Contents::Keep, |_| panic!("as it should"))));
    assert!(changed.is_err(), "the panic goes on");
    test.assert_returns_everything_after((memory, pool, stream));
}

#[test]
fn buffers_of_a_pool_that_sleeps_are_refused() {
    let test = test();
    let (stream, pool) = (test.stream(), test.allocator.create_pool());
    let mut asleep = buffer(&test, &pool, &stream, 1);
    let mut other = test.allocator.allocate_buffer(BYTES, &stream).unwrap();
    other.fill(2).unwrap();
    pool.sleep(Contents::Keep).expect("it can sleep");
    let calls = test.calls_during(|| {
        assert_eq!(problem(asleep.fill(3)), PoolProblem::Asleep);
        assert_eq!(problem(asleep.write(&vec![3; BYTES])), PoolProblem::Asleep);
        assert_eq!(problem(asleep.read()), PoolProblem::Asleep);
        assert_eq!(problem(asleep.copy_from(&other)), PoolProblem::Asleep);
        assert_eq!(problem(other.copy_from(&asleep)), PoolProblem::Asleep);
    });
    assert_eq!(calls, 0, "nothing is queued");
    assert_holds(&other, 2);
    pool.wake().expect("there is memory");
    assert_holds(&asleep, 1);
    asleep.copy_from(&other).expect("it is awake");
    assert_holds(&asleep, 2);
}

#[test]
fn a_buffer_call_under_way_ends_before_memory_goes() {
    let test = test();
    let pool = test.allocator.create_pool();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for byte in 1..=3_u8 {
            let (test, pool, done) = (&test, &pool, &done);
            scope.spawn(move || {
                let [stream, side] = test.streams();
                let mut there = test.allocator.allocate_buffer(BYTES, &side).unwrap();
                let make = || {
                    let _inside = pool.enter(&stream).expect("a thread may enter");
                    test.allocator.allocate_buffer::<u8>(BYTES, &stream)
                };
                let mut here = loop {
                    match make() {
                        Ok(buffer) => break buffer,
                        _ if done.load(Relaxed) => return,
                        refused => assert_eq!(problem(refused), PoolProblem::Asleep),
                    }
                };
                for round in 0.. {
                    if done.load(Relaxed) {
                        break;
                    }
                    // A queue without bound would take `sleep` ever longer to wait for.
                    if round % 8 == 0 {
                        side.synchronize().expect("no work finds its memory gone");
                    }
                    for result in [here.fill(byte), there.copy_from(&here)] {
                        if result.is_err() {
                            assert_eq!(problem(result), PoolProblem::Asleep);
                        }
                    }
                }
            });
        }
        for _ in 0..20 {
            let slept = pool.sleep(Contents::Keep).map(|_| ());
            let woken = pool.wake().map(|_| ());
            if slept.is_err() || woken.is_err() {
                done.store(true, Relaxed);
            }
            slept.and(woken).expect("no work finds its memory gone");
        }
        done.store(true, Relaxed);
    });
}

#[test]
fn a_captured_stream_that_copied_from_a_pool_keeps_it_awake() {
    let (test, [stream, side]) = test().with_streams();
    let pool = test.allocator.create_pool();
    let from = buffer(&test, &pool, &stream, 1);
    let mut to = test.allocator.allocate_buffer(BYTES, &side).unwrap();
    let hold = test.hold(&side);
    to.copy_from(&from).expect("a copy is queued");
    let (_graphs, capture) = test.capture(&side);
    assert_eq!(problem(pool.sleep(Contents::Keep)), PoolProblem::Captured);
    drop((capture, hold));
    pool.sleep(Contents::Keep).expect("it can sleep");
    assert_holds(&to, 1);
}

#[test]
fn addresses_of_a_pool_that_sleeps_go_to_no_other_heap() {
    let woken = (0..20).any(|_| {
        let host = HostConfig::default().withholding().stepped(5);
        let test = TestAllocator::elastic_on(host, ",expandable_segments_reserve:64M");
        let (stream, pool) = (test.stream(), test.allocator.create_pool());
        let asleep = buffer(&test, &pool, &stream, 1);
        test.device.fail_next(Call::Reserve, 1, ErrorKind::OutOfMemory);
        pool.sleep(Contents::Keep).expect("it can sleep");
        let others: Vec<_> = (0..6).map(|_| buffer(&test, &test.allocator.create_pool(), &test.stream(), 5)).collect();
        assert!(others.iter().all(|other| other.ptr() != asleep.ptr()));
        // The process itself may map something at addresses that were released, such as the stack of a thread.
        let woken = pool.wake().is_ok();
        if woken {
            assert_holds(&asleep, 1);
        }
        for other in &others {
            assert_holds(other, 5);
        }
        woken
    });
    assert!(woken, "its addresses are free");
}

#[test]
fn addresses_that_another_owner_has_got_stay_with_it() {
    // Something else in the process may be faster than the other owner.
    for _ in 0..100 {
        let host = HostConfig::default().withholding();
        let test = TestAllocator::elastic_on(host, ",expandable_segments_reserve:64M");
        let (stream, pool) = (test.stream(), test.allocator.create_pool());
        let asleep = buffer(&test, &pool, &stream, 1);
        let address = asleep.ptr();
        test.device.fail_next(Call::Reserve, 1, ErrorKind::OutOfMemory);
        pool.sleep(Contents::Keep).expect("it can sleep");
        let other = test.beside("expandable_segments:True,expandable_segments_reserve:64M");
        let mut there = other.allocator.allocate_buffer::<u8>(BYTES, &other.stream()).unwrap();
        if there.ptr() != address {
            continue;
        }
        there.fill(5).unwrap();
        assert!(matches!(problem(pool.wake()), PoolProblem::NoMemory { .. }));
        drop((asleep, pool, stream, test));
        assert_holds(&there, 5);
        return;
    }
    panic!("the host never gave the addresses out again");
}

#[test]
fn waking_takes_no_more_than_the_limit_leaves() {
    let test = test();
    let (stream, pool) = (test.stream(), test.allocator.create_pool());
    let memory = pool.allocate(8 * MIB, &stream).unwrap();
    test.fill(&memory, 4, &stream);
    pool.sleep(Contents::Keep).expect("it can sleep");
    test.allocator.set_memory_limit(Some(8 * MIB));
    let (other, mut taken) = (test.stream(), None);
    let woken = pool.wake_with(|_| taken = taken.take().or(test.allocator.allocate(MIB, &other).ok()));
    assert!(test.allocator.reserved_bytes() <= 8 * MIB);
    assert_eq!((woken, taken.is_none()), (Ok(8 * MIB), true));
    pool.sleep(Contents::Keep).expect("it can sleep");
    let little = test.allocate(MIB, &other);
    assert!(matches!(problem(pool.wake()), PoolProblem::NoMemory { .. }));
    assert!(pool.is_asleep());
    assert_asleep_sound(&test);
    drop(little);
    pool.wake().expect("what others do not use goes first");
    assert_eq!(test.content(&memory, &stream), Some(4));
}

#[test]
fn what_was_freed_asleep_is_neither_copied_nor_given_memory() {
    let test = test();
    let (stream, pool) = (test.stream(), test.allocator.create_pool());
    let side = test.stream();
    let memory: Vec<_> = (0..4).map(|_| pool.allocate(2 * MIB, &stream).unwrap()).collect();
    memory[1].record_stream(&side);
    pool.sleep(Contents::Keep).expect("it can sleep");
    drop(memory);
    let uploads = test.calls_of(Call::Upload, || {
        assert_eq!(pool.wake().expect("nothing is needed"), 0);
    });
    assert_eq!((uploads, pool.stats().reserved_bytes), (0, 0));
    test.assert_elastic_sound();
    let again = pool.allocate(MIB, &stream).expect("it serves again");
    drop(again);
}

#[test]
fn a_freed_part_of_a_chunk_is_not_copied_back() {
    let test = test();
    let (stream, pool) = (test.stream(), test.allocator.create_pool());
    let [first, second, third] = [MIB / 2; 3].map(|bytes| pool.allocate(bytes, &stream).expect("there is room"));
    for (byte, memory) in (1..).zip([&first, &second, &third]) {
        test.fill(memory, byte, &stream);
    }
    let slept = pool.sleep(Contents::Keep).expect("it can sleep");
    assert_eq!((slept.released, slept.saved), (2 * MIB, 3 * MIB / 2));
    drop(second);
    let uploads = test.calls_of(Call::Upload, || {
        pool.wake().expect("there is memory");
    });
    assert_eq!(uploads, 2, "one on either side of what was freed");
    assert_eq!(test.content(&first, &stream), Some(1));
    assert_eq!(test.content(&third, &stream), Some(3));
}

#[test]
fn functions_that_are_told_of_progress_may_call_back() {
    let ended = in_time(|| {
        let test = test();
        let (stream, pool) = (test.stream(), test.allocator.create_pool());
        let mut buffer = buffer(&test, &pool, &stream, 1);
        let mut calls_back = || {
            assert_eq!(problem(pool.wake()), PoolProblem::Changing);
            assert_eq!(problem(pool.sleep(Contents::Discard)), PoolProblem::Changing);
            assert_eq!(problem(pool.allocate(MIB, &stream)), PoolProblem::Asleep);
            assert_eq!(problem(buffer.fill(2)), PoolProblem::Asleep);
            pool.empty_cache().expect("it is left as it is");
            test.allocator.empty_cache().expect("others are emptied");
            drop(test.allocate(MIB, &stream));
            drop(test.allocator.open_pool(pool.id()).expect("it is there"));
            assert!(pool.is_asleep());
        };
        let slept = pool.sleep_with(Contents::Keep, |_| calls_back());
        slept.expect("it can sleep");
        pool.wake_with(|_| calls_back()).expect("there is memory");
        assert_holds(&buffer, 1);
    });
    assert!(ended.is_some(), "it waits for itself");
}

#[test]
fn chunks_of_a_pool_that_sleeps_serve_no_other_heap() {
    let test = TestAllocator::elastic_on(HostConfig::default().capacity(16 * MIB), "");
    let (stream, pool) = (test.stream(), test.allocator.create_pool());
    let memory = pool.allocate(8 * MIB, &stream).unwrap();
    pool.sleep(Contents::Discard).expect("it can sleep");
    drop((pool, memory));
    // Nothing uses the pool any more, so other heaps look for memory in it.
    let other = test.allocate(12 * MIB, &test.stream());
    test.fill(&other, 3, &stream);
    assert_eq!(test.content(&other, &stream), Some(3));
    test.allocator.check().expect("every invariant holds");
}

/// Lets the waits of every kind fail, from the `nth` wait for an event on.
fn fail_waits(test: &TestAllocator, nth: u64) {
    for more in 0..4 {
        let fail = |call, nth| test.device.fail_next(call, nth, ErrorKind::Other);
        fail(Call::Wait, nth + more);
        fail(Call::Synchronize, 1 + more);
        fail(Call::SynchronizeDevice, 1 + more);
    }
}

#[test]
fn host_memory_that_a_copy_may_use_serves_no_other_sleep() {
    let mut seen = [0, 0];
    for (waking, nth) in [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (0, 6), (1, 1)] {
        let test = test();
        let (stream, pool, memory) = filled(&test);
        if waking > 0 {
            pool.sleep(Contents::Keep).expect("it can sleep");
        }
        fail_waits(&test, nth);
        let changed = if waking > 0 { pool.wake() } else { pool.sleep(Contents::Keep).map(|slept| slept.released) };
        test.device.clear_failures();
        if changed.is_err() && pool.is_asleep() {
            // Copies were queued, and it is unknown whether they ended.
            assert_eq!(test.allocator.release_contents(), 0, "they may be in use");
            seen[waking] += 1;
        }
        pool.wake().expect("nothing stands in the way any more");
        assert_filled(&test, &memory, &stream);
        test.assert_elastic_sound();
    }
    assert!(seen.iter().all(|seen| *seen > 0), "{seen:?}");
}
