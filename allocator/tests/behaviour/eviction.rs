//! Evictable pools: they give up their memory under pressure, and have it again when they are used.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use cachette::evict::{Priority, Resident};
use cachette::hal::Call;
use cachette::pool::PoolProblem;
use cachette::sleep::Contents;
use cachette::{Error, OomHint, OutOfMemory, PoolOptions};
use cachette_hal_host::HostConfig;

use crate::fixture::threads::{PATIENCE, Stop, in_time, is_waiting, start};
use crate::fixture::{Allocation, ELASTIC, MIB, Pool, Stream, TestAllocator, begin_capture};
use crate::sleep::problem;

/// An allocator that may hold `mib`, and a stream.
fn limited(mib: u64, more: &str) -> (TestAllocator, Stream) {
    let test = TestAllocator::with(&format!("{ELASTIC},memory_limit:{mib}MiB{more}"));
    let stream = test.stream();
    (test, stream)
}

/// A pool of a priority, with memory that its number fills.
fn layer(test: &TestAllocator, priority: u32, byte: u8, bytes: u64, stream: &Stream) -> (Pool, Allocation) {
    let options = PoolOptions::new().evictable(Priority(priority));
    let pool = test.allocator.create_pool_with(options).expect("the options are allowed");
    let memory = pool.allocate(bytes, stream).expect("there is room");
    test.fill(&memory, byte, stream);
    (pool, memory)
}

fn resident(pool: &Pool) -> Resident {
    pool.make_resident().expect("there is room")
}

fn out_of_memory<T: std::fmt::Debug>(result: Result<T, Error>) -> OutOfMemory {
    match result {
        Err(Error::OutOfMemory(report)) => *report,
        other => panic!("{other:?} is no lack of memory"),
    }
}

#[test]
fn a_request_that_lacks_memory_evicts_a_pool_and_its_contents_come_back() {
    for host in [HostConfig::default(), HostConfig::default().stepped(3)] {
        let test = TestAllocator::checked(host, &format!("{ELASTIC},memory_limit:64MiB"));
        let stream = test.stream();
        let (pool, memory) = layer(&test, 0, 7, 40 * MIB, &stream);
        assert_eq!(test.allocator.evictable_bytes(), 40 * MIB);
        let other = test.allocate(40 * MIB, &stream);
        assert!(pool.is_asleep() && test.stats().num_evictions == 1);
        assert_eq!(test.allocator.evictable_bytes(), 0, "it has no memory now");
        drop(other);
        let address = memory.address();
        let guard = resident(&pool);
        assert_eq!(test.content(&memory, &stream), Some(7));
        assert_eq!((memory.address(), guard.pool().id()), (address, pool.id()));
        test.assert_returns_everything_after((guard, memory, pool, stream));
    }
}

#[test]
fn a_pool_without_memory_is_not_counted_as_evicted() {
    let (test, _stream) = limited(64, "");
    let _pool = test.allocator.create_pool_with(PoolOptions::new().evictable(Priority(0))).unwrap();
    assert_eq!((test.allocator.evict(MIB).unwrap(), test.stats().num_evictions), (0, 0));
}

#[test]
fn the_lowest_priority_goes_first_then_the_least_recently_resident_and_no_more_than_needed() {
    let (test, stream) = limited(100, "");
    let sizes = [(2, 1), (0, 2), (1, 3), (0, 4), (1, 5)];
    let layers = sizes.map(|(priority, byte)| layer(&test, priority, byte, 20 * MIB, &stream));
    // Of the two with priority 0 the second is used earlier; of those with 1 the first.
    for index in [3, 2, 1, 4, 0] {
        drop(resident(&layers[index].0));
    }
    let asleep = || layers.each_ref().map(|(pool, _)| pool.is_asleep());
    let mut held = Vec::new();
    let mut expected = [false; 5];
    for index in [3, 1, 2, 4, 0] {
        held.push(test.allocate(20 * MIB, &stream));
        expected[index] = true;
        assert_eq!(asleep(), expected);
    }
    out_of_memory(test.allocator.allocate(2 * MIB, &stream));
    drop(held);
    for (pool, memory) in &layers {
        let _here = resident(pool);
        let byte = sizes[layers.iter().position(|(other, _)| other.id() == pool.id()).unwrap()].1;
        assert_eq!(test.content(memory, &stream), Some(byte));
    }
    // One request takes as many pools as it needs.
    let two = test.allocate(40 * MIB, &stream);
    assert_eq!(asleep(), [false, true, false, true, false]);
    drop(two);
}

#[test]
fn a_pool_with_a_guard_stays_and_the_request_fails() {
    let (test, stream) = limited(64, "");
    let (pool, memory) = layer(&test, 0, 7, 40 * MIB, &stream);
    let (first, second) = (resident(&pool), resident(&pool));
    out_of_memory(test.allocator.allocate(40 * MIB, &stream));
    assert_eq!(problem(pool.sleep(Contents::Keep)), PoolProblem::Resident);
    drop(first);
    out_of_memory(test.allocator.allocate(40 * MIB, &stream));
    assert!(!pool.is_asleep() && test.stats().num_evictions == 0);
    assert_eq!(test.allocator.evictable_bytes(), 0);
    drop(second);
    let other = test.allocate(40 * MIB, &stream);
    // A pool that cannot wake has lost nothing, and no guard stays.
    assert!(matches!(problem(pool.make_resident()), PoolProblem::NoMemory { .. }));
    drop(other);
    let _here = resident(&pool);
    assert_eq!(test.content(&memory, &stream), Some(7));
}

#[test]
fn a_report_names_what_sleeps_and_what_guards_keep() {
    let (test, stream) = limited(64, "");
    let (asleep, _first) = layer(&test, 0, 1, 40 * MIB, &stream);
    asleep.sleep(Contents::Keep).expect("it can sleep");
    let report = out_of_memory(test.allocator.allocate(80 * MIB, &stream));
    assert_eq!((report.allocated, report.asleep, report.guarded, report.reserved), (0, 40 * MIB, 0, 0));
    assert!(report.to_string().contains("; pools that sleep have 40.00 MiB more"), "{report}");
    let (guarded, _second) = layer(&test, 0, 2, 30 * MIB, &stream);
    let guard = resident(&guarded);
    let report = out_of_memory(test.allocator.allocate(40 * MIB, &stream));
    assert_eq!((report.allocated, report.asleep, report.guarded), (30 * MIB, 40 * MIB, 30 * MIB));
    assert_eq!(report.hints(), [OomHint::Limit, OomHint::Guarded]);
    let segments = test.allocator.snapshot().segments;
    let mut marked: Vec<_> = segments.iter().map(|segment| (segment.bytes, segment.asleep)).collect();
    marked.sort_unstable();
    assert_eq!(marked, [(30 * MIB, false), (40 * MIB, true)]);
    // The pool that wakes is not in its own way.
    drop(guard);
    let own = guarded.make_resident().expect("it is awake");
    let report = out_of_memory(guarded.allocate(80 * MIB, &stream));
    assert_eq!((report.guarded, report.hints()), (0, vec![OomHint::Limit]));
    drop(own);
}

#[test]
fn a_pool_without_a_guard_is_not_reported_as_guarded() {
    let (test, stream) = limited(64, ",never_block:True");
    let (pool, _memory) = layer(&test, 0, 1, 40 * MIB, &stream);
    let report = out_of_memory(test.allocator.allocate(40 * MIB, &stream));
    assert_eq!((pool.is_asleep(), report.guarded), (false, 0));
    assert!(!report.hints().contains(&OomHint::Guarded), "{report}");
    // Nor is a guarded pool that cannot be evicted anyway.
    let usual = test.allocator.create_pool();
    let _usual = usual.allocate(MIB, &stream).expect("there is room");
    let _here = resident(&usual);
    assert_eq!(out_of_memory(test.allocator.allocate(40 * MIB, &stream)).guarded, 0);
}

#[test]
fn a_pool_that_wakes_evicts_another() {
    let (test, stream) = limited(64, "");
    let layers = [1, 2, 3].map(|byte| layer(&test, u32::from(byte), byte, 30 * MIB, &stream));
    for _ in 0..3 {
        for (byte, (pool, memory)) in (1..).zip(&layers) {
            let here = resident(pool);
            assert_eq!(test.content(memory, &stream), Some(byte));
            // A plain wake does the same.
            drop(here);
        }
    }
    let asleep = layers.iter().find(|(pool, _)| pool.is_asleep()).expect("three do not fit");
    asleep.0.wake().expect("another one is evicted");
    assert_eq!(layers.iter().filter(|(pool, _)| pool.is_asleep()).count(), 1);
    assert!(test.stats().reserved_bytes.all.current <= 64 * MIB);
}

#[test]
fn a_pool_of_no_priority_is_never_evicted() {
    let (test, stream) = limited(64, "");
    let pool = test.allocator.create_pool();
    let _memory = pool.allocate(40 * MIB, &stream).expect("there is room");
    out_of_memory(test.allocator.allocate(40 * MIB, &stream));
    drop(resident(&pool));
    out_of_memory(test.allocator.allocate(40 * MIB, &stream));
    assert!(!pool.is_asleep());
}

#[test]
fn a_pool_without_memory_stays_awake_for_its_first_request() {
    let (test, stream) = limited(64, "");
    let empty = test.allocator.create_pool_with(PoolOptions::new().evictable(Priority(0))).expect("they are allowed");
    let _weights = test.allocate(60 * MIB, &stream);
    out_of_memory(test.allocator.allocate(10 * MIB, &stream));
    assert_eq!((empty.is_asleep(), test.allocator.stats().num_evictions), (false, 0));
    assert!(empty.allocate(2 * MIB, &stream).is_ok());
}

#[test]
fn a_request_does_not_evict_its_own_pool() {
    let (test, stream) = limited(64, "");
    let (pool, memory) = layer(&test, 0, 7, 40 * MIB, &stream);
    out_of_memory(pool.allocate(40 * MIB, &stream));
    assert!(!pool.is_asleep());
    assert_eq!(test.content(&memory, &stream), Some(7));
}

#[test]
fn with_never_block_nothing_is_evicted() {
    let (test, stream) = limited(64, ",never_block:True");
    let (pool, _memory) = layer(&test, 0, 7, 40 * MIB, &stream);
    out_of_memory(test.allocator.allocate(40 * MIB, &stream));
    assert!(!pool.is_asleep());
    assert_eq!(test.allocator.evict(1).expect("a call by name is no request"), 40 * MIB);
}

#[test]
fn work_queued_under_a_guard_ends_before_the_eviction() {
    let (test, stream) = limited(64, "");
    let side = test.stream();
    let (pool, memory) = layer(&test, 0, 7, 40 * MIB, &stream);
    stream.synchronize().expect("it runs dry");
    let hold = test.hold(&side);
    let guard = resident(&pool);
    test.fill(&memory, 9, &side);
    drop(guard);
    let (allocator, wanting) = (test.allocator.clone(), stream.clone());
    let request = start(move || allocator.allocate(40 * MIB, &wanting).map(drop));
    while !is_waiting(&request) {
        std::thread::yield_now();
    }
    assert_eq!(test.device.physical_bytes(), 40 * MIB, "its memory is in use");
    hold.release();
    request.recv_timeout(PATIENCE).expect("no deadlock").expect("the pool was evicted");
    let _here = resident(&pool);
    assert_eq!(test.content(&memory, &stream), Some(9));
}

#[test]
fn pools_that_cannot_sleep_are_passed_over() {
    let (test, stream) = limited(64, "");
    let captured = test.stream();
    let (first, _one) = layer(&test, 0, 1, 20 * MIB, &captured);
    let (second, _two) = layer(&test, 1, 2, 20 * MIB, &stream);
    let graphs = test.allocator.create_capture_pool();
    let capture = begin_capture(&graphs, &captured);
    let memory = test.allocator.allocate(40 * MIB, &stream);
    assert!(memory.is_ok() && second.is_asleep() && !first.is_asleep());
    drop(capture.end());
}

#[test]
fn the_contents_that_a_reload_writes_are_dropped() {
    let (test, stream) = limited(64, "");
    let fails = Arc::new(AtomicBool::new(true));
    let calls = Arc::new(AtomicU64::new(0));
    let reload = {
        let (fails, calls) = (Arc::clone(&fails), Arc::clone(&calls));
        move |_| {
            calls.fetch_add(1, Relaxed);
            if fails.load(Relaxed) { Err("the disk is away") } else { Ok(()) }
        }
    };
    let options = PoolOptions::new().evictable(Priority(1)).reload(reload);
    let pool = test.allocator.create_pool_with(options).expect("the options are allowed");
    let memory = pool.allocate(40 * MIB, &stream).expect("there is room");
    drop(resident(&pool));
    assert_eq!(calls.load(Relaxed), 0, "nothing was lost");
    let copies = test.calls_of(Call::Download, || drop(test.allocate(40 * MIB, &stream)));
    assert_eq!((copies, pool.is_asleep()), (0, true), "the contents are not kept");
    let failed = pool.make_resident().map(drop).unwrap_err();
    assert!(failed.to_string().contains("the disk is away"), "{failed}");
    assert_eq!(test.allocator.evictable_bytes(), 40 * MIB, "the failed call left no guard");
    fails.store(false, Relaxed);
    drop(resident(&pool));
    drop(resident(&pool));
    assert_eq!(calls.load(Relaxed), 2, "once after the failure, and not again");
    test.fill(&memory, 3, &stream);
    assert_eq!(test.content(&memory, &stream), Some(3));
}

#[test]
fn no_thread_has_a_guard_before_the_contents_are_written_again() {
    let (test, stream) = limited(64, "");
    let (begun, go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let reload = {
        let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
        move |_| {
            begun.store(true, Relaxed);
            while !go.load(Relaxed) {
                std::thread::yield_now();
            }
            Ok::<_, Error>(())
        }
    };
    let options = PoolOptions::new().evictable(Priority(1)).reload(reload);
    let pool = Arc::new(test.allocator.create_pool_with(options).expect("the options are allowed"));
    let _memory = pool.allocate(40 * MIB, &stream).expect("there is room");
    test.allocator.evict(1).expect("it can sleep");
    let _stop = Stop(&go);
    let starter = |pool: Arc<Pool>| start(move || pool.make_resident().map(drop));
    let first = starter(Arc::clone(&pool));
    while !begun.load(Relaxed) {
        std::thread::yield_now();
    }
    let second = starter(Arc::clone(&pool));
    while !is_waiting(&second) {
        std::thread::yield_now();
    }
    assert!(second.try_recv().is_err());
    go.store(true, Relaxed);
    for guard in [first, second] {
        guard.recv_timeout(PATIENCE).expect("no deadlock").expect("it is resident");
    }
}

#[test]
fn an_evicted_pool_that_is_dropped_leaves_nothing() {
    let test = TestAllocator::checked(HostConfig::default(), &format!("{ELASTIC},memory_limit:64MiB"));
    let stream = test.stream();
    let (pool, memory) = layer(&test, 0, 7, 40 * MIB, &stream);
    let guard = resident(&pool);
    drop(pool);
    assert_eq!(guard.pool().use_count(), 1, "a guard is a user");
    drop(guard);
    assert_eq!(test.allocator.evict(u64::MAX).expect("it sleeps, since its memory is used"), 40 * MIB);
    test.assert_returns_everything_after((memory, stream));
}

/// Pools of twice the limit, used by threads that evict each other's, beside requests of the default pool.
#[test]
fn a_pool_with_a_new_guard_is_not_evicted() {
    let (test, stream) = limited(64, "");
    let options = PoolOptions::new().evictable(Priority(0)).reload(|_| Ok::<_, &str>(()));
    let pool = test.allocator.create_pool_with(options).expect("the options are allowed");
    let _memory = pool.allocate(2 * MIB, &stream).expect("there is room");
    let (stop, tries) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                test.allocator.evict(1).expect("an eviction never fails");
                tries.fetch_add(1, Relaxed);
            }
        });
        for _ in 0..100 {
            let here = resident(&pool);
            let seen = tries.load(Relaxed);
            while tries.load(Relaxed) < seen + 2 {
                std::thread::yield_now();
            }
            assert!(!pool.is_asleep());
            drop(here);
            while !pool.is_asleep() {
                std::thread::yield_now();
            }
        }
    });
}

#[test]
fn threads_that_evict_each_other_all_progress_and_keep_every_byte() {
    const LAYERS: u8 = 6;
    let done = in_time(|| {
        let (test, stream) = limited(64, "");
        let layers: Vec<_> =
            (0..LAYERS).map(|byte| layer(&test, u32::from(byte % 3), byte, 20 * MIB, &stream)).collect();
        stream.synchronize().expect("it runs dry");
        let (test, layers) = (&test, &layers);
        std::thread::scope(|scope| {
            for thread in 0..3_usize {
                scope.spawn(move || {
                    let stream = test.stream();
                    for turn in 0..40_usize {
                        let index = (turn * (thread + 1) + thread) % layers.len();
                        let (pool, memory) = &layers[index];
                        // At most 60 MiB are under guards, and the default pool may hold what is left.
                        match pool.make_resident() {
                            Ok(_here) => {
                                assert_eq!(test.content(memory, &stream), u8::try_from(index).ok());
                            }
                            Err(Error::Pool { why: PoolProblem::NoMemory { .. }, .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                        match test.allocator.allocate(8 * MIB, &stream) {
                            Ok(other) => test.fill(&other, 99, &stream),
                            Err(error) => drop(out_of_memory::<()>(Err(error))),
                        }
                    }
                });
            }
        });
        for (byte, (pool, memory)) in (0..).zip(layers) {
            let _here = resident(pool);
            assert_eq!(test.content(memory, &stream), Some(byte));
        }
        assert!(test.stats().num_evictions > 0);
        test.allocator.check().expect("every invariant holds");
    });
    assert!(done.is_some(), "a deadlock");
}

#[test]
fn a_pool_that_gets_a_guard_while_another_is_evicted_stays() {
    let (test, stream) = limited(100, "");
    let (second, memory) = layer(&test, 1, 2, 20 * MIB, &stream);
    let (second, guards) = (Arc::new(second), Arc::new(Mutex::new(Vec::new())));
    let use_second = {
        let (second, guards) = (Arc::clone(&second), Arc::clone(&guards));
        move |_| {
            guards.lock().unwrap().push(resident(&second));
            Ok::<_, &str>(())
        }
    };
    let options = PoolOptions::new().evictable(Priority(0)).before_sleep(use_second);
    let first = test.allocator.create_pool_with(options).expect("the options are allowed");
    let _kept = first.allocate(20 * MIB, &stream).expect("there is room");
    // The second pool was chosen, too, before the first one went to sleep.
    assert_eq!(test.allocator.evict(40 * MIB).unwrap(), 20 * MIB);
    assert_eq!((first.is_asleep(), second.is_asleep()), (true, false));
    assert_eq!(test.content(&memory, &stream), Some(2));
    guards.lock().unwrap().clear();
    assert_eq!(test.allocator.evict(20 * MIB).unwrap(), 20 * MIB);
}
