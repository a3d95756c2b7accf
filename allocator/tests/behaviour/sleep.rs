//! Sleeping pools: their memory is freed, their addresses and contents are kept.

use cachette::hal::{Call, Device};
use cachette::pool::PoolProblem;
use cachette::sleep::{Contents, Progress, SleepStats};
use cachette::{Error, PoolOptions};
use cachette_hal_host::HostConfig;

use crate::fixture::threads::{Stop, is_waiting, start};
use crate::fixture::{Allocation, ELASTIC, GIB, MIB, Pool, Stream, TestAllocator, config};

/// The pool of [`filled`], of an allocator with elastic segments.
fn filled_pool() -> (TestAllocator, Stream, Pool, [Allocation; 3]) {
    let test = TestAllocator::elastic_on(HostConfig::default(), "");
    let (stream, pool, memory) = filled(&test);
    (test, stream, pool, memory)
}

/// A pool with three pieces of memory, filled with 1, 2 and 3.
pub(crate) fn filled(test: &TestAllocator) -> (Stream, Pool, [Allocation; 3]) {
    filled_with(test, [5 * MIB, MIB / 2, 9 * MIB])
}

pub(crate) fn filled_with(test: &TestAllocator, sizes: [u64; 3]) -> (Stream, Pool, [Allocation; 3]) {
    let (stream, pool) = (test.stream(), test.allocator.create_pool());
    let memory = sizes.map(|bytes| pool.allocate(bytes, &stream).expect("there is room"));
    for (byte, memory) in (1..).zip(&memory) {
        test.fill(memory, byte, &stream);
    }
    (stream, pool, memory)
}

pub(crate) fn problem<T: std::fmt::Debug>(result: Result<T, Error>) -> PoolProblem {
    match result {
        Err(Error::Pool { why, .. }) => why,
        other => panic!("{other:?} is no problem of a pool"),
    }
}

/// What is used and what is held do not match while a pool sleeps; all else must.
pub(crate) fn assert_asleep_sound(test: &TestAllocator) {
    test.allocator.check().expect("every invariant holds");
    let reserved = test.stats().reserved_bytes.all.current;
    assert_eq!(test.device.physical_bytes(), reserved);
}

pub(crate) fn assert_filled(test: &TestAllocator, memory: &[Allocation], stream: &Stream) {
    for (byte, memory) in (1..).zip(memory) {
        assert_eq!(test.content(memory, stream), Some(byte));
    }
}

#[test]
fn a_pool_does_not_sleep_under_memory_of_the_default_pool() {
    let test = TestAllocator::of(32 * MIB, ELASTIC);
    let stream = test.stream();
    let pool = test.allocator.create_pool_with(PoolOptions::new().use_on_oom(true)).expect("the options are allowed");
    let whole = pool.allocate(30 * MIB, &stream).expect("there is room");
    let kept = pool.allocate(2 * MIB, &stream).expect("there is room");
    drop(whole);
    let lent = test.allocator.allocate(30 * MIB, &stream).expect("the pool serves it");
    test.fill(&lent, 7, &stream);
    let address = lent.address();
    assert_eq!(pool.stats().allocations, 2, "the pool served it");
    for contents in [Contents::Keep, Contents::Discard] {
        assert_eq!(problem(pool.sleep(contents)), PoolProblem::Lent { address });
    }
    assert_eq!(test.content(&lent, &stream), Some(7));
    drop(lent);
    pool.sleep(Contents::Keep).expect("its memory is free");
    pool.wake().expect("there is room");
    test.assert_returns_everything_after((kept, pool, stream));
}

#[test]
fn a_sleeping_pool_has_no_memory_and_wakes_unchanged() {
    for host in [HostConfig::default(), HostConfig::default().stepped(3)] {
        let test = TestAllocator::elastic_on(host, "");
        let (stream, pool, memory) = filled(&test);
        let before = memory.each_ref().map(Allocation::address);
        let held = test.device.physical_bytes();
        let free = test.device.memory_info().unwrap().free;
        let slept = pool.sleep(Contents::Keep).expect("it can sleep");
        assert_eq!(slept.released, held);
        let used: u64 = memory.iter().map(Allocation::bytes).sum();
        assert_eq!(slept.saved, used, "contents of unused memory are not kept");
        assert!(pool.is_asleep());
        assert_eq!(test.device.physical_bytes(), 0);
        assert_eq!(test.device.memory_info().unwrap().free, free + held);
        assert_eq!(pool.stats().reserved_bytes, 0);
        assert_asleep_sound(&test);
        assert_eq!(pool.wake().expect("there is memory"), held);
        assert_eq!(memory.each_ref().map(Allocation::address), before);
        assert_filled(&test, &memory, &stream);
        test.assert_elastic_sound();
        let more = pool.allocate(3 * MIB, &stream).expect("it serves again");
        drop((more, memory, pool, stream));
        test.device.run_until_idle();
        test.assert_returns_everything();
    }
}

#[test]
fn a_hundred_nights_keep_every_byte_and_leave_no_growth() {
    let (test, stream, pool, memory) = filled_pool();
    let mut held = Vec::new();
    for _ in 0..100 {
        pool.sleep(Contents::Keep).expect("it can sleep");
        pool.wake().expect("there is memory");
        assert_filled(&test, &memory, &stream);
        held.push((test.device.live(), test.device.physical_bytes()));
    }
    assert!(held.windows(2).all(|pair| pair[0] == pair[1]), "{held:?}");
    assert!(test.allocator.release_contents() > 0);
    assert_eq!(test.allocator.release_contents(), 0);
    test.allocator.prepare_contents(64 * MIB).expect("the host has that");
    let registered = test.calls_of(Call::Register, || {
        pool.sleep(Contents::Keep).expect("it can sleep");
    });
    assert_eq!(registered, 0, "what was prepared serves");
}

#[test]
fn contents_that_are_dropped_need_no_host_memory_and_no_copies() {
    let (test, stream, pool, memory) = filled_pool();
    let copies = test.calls_of(Call::Download, || {
        let slept = pool.sleep(Contents::Discard).expect("it can sleep");
        assert_eq!(slept.saved, 0);
    });
    assert_eq!((copies, test.device.calls(Call::Register)), (0, 0));
    pool.wake().expect("there is memory");
    test.fill(&memory[0], 7, &stream);
    assert_eq!(test.content(&memory[0], &stream), Some(7));
}

#[test]
fn work_under_way_ends_before_memory_goes() {
    let (test, stream, pool, memory) = filled_pool();
    let side = test.stream();
    stream.synchronize().expect("nothing holds it");
    let hold = test.hold(&side);
    test.fill(&memory[0], 77, &side);
    memory[0].record_stream(&side);
    let user = test.allocator.open_pool(pool.id()).expect("it is there");
    let answer = start(move || user.sleep(Contents::Keep).map(|_| ()));
    assert!(is_waiting(&answer), "a stream is still busy");
    assert!(test.device.physical_bytes() > 0);
    drop(hold);
    answer.recv().expect("it ends").expect("it can sleep");
    pool.wake().expect("there is memory");
    assert_eq!(test.content(&memory[0], &stream), Some(77));
}

#[test]
fn sleep_and_wake_are_idempotent() {
    let (test, stream, pool, memory) = filled_pool();
    assert_eq!(pool.wake().expect("it is awake"), 0);
    pool.sleep(Contents::Keep).expect("it can sleep");
    let again = pool.sleep(Contents::Discard).expect("it sleeps");
    assert_eq!(again, SleepStats::default());
    pool.wake().expect("there is memory");
    assert_eq!(pool.wake().expect("it is awake"), 0);
    assert_filled(&test, &memory, &stream);
}

#[test]
fn a_sleeping_pool_refuses_requests_with_an_error() {
    let (test, stream, pool, memory) = filled_pool();
    drop(pool.allocate(MIB, &stream).unwrap());
    pool.sleep(Contents::Keep).expect("it can sleep");
    assert_eq!(problem(pool.allocate(MIB, &stream)), PoolProblem::Asleep);
    assert_eq!(problem(pool.allocate(MIB, &test.stream())), PoolProblem::Asleep);
    {
        let _inside = pool.enter(&stream).expect("a thread may enter");
        assert_eq!(problem(test.allocator.allocate(512, &stream)), PoolProblem::Asleep);
    }
    assert_eq!(problem(pool.checkpoint()), PoolProblem::Asleep);
    let mode = cachette::hal::CaptureMode::Global;
    assert_eq!(problem(pool.begin_capture(&stream, mode)), PoolProblem::Asleep);
    test.allocator.empty_cache().expect("others are emptied");
    pool.wake().expect("there is memory");
    drop(pool.allocate(MIB, &stream).expect("it serves again"));
    assert_filled(&test, &memory, &stream);
}

#[test]
fn memory_may_be_freed_while_its_pool_sleeps() {
    let (test, stream, pool, [first, second, third]) = filled_pool();
    pool.sleep(Contents::Keep).expect("it can sleep");
    drop(first);
    let raw = second.into_raw();
    test.allocator.free_raw(raw).expect("it is the pool's");
    assert_asleep_sound(&test);
    pool.empty_cache().expect("nothing fails");
    assert_asleep_sound(&test);
    pool.wake().expect("there is memory");
    assert_eq!(test.content(&third, &stream), Some(3));
    assert!(test.device.physical_bytes() < 14 * MIB, "what was freed is not got again");
    test.assert_elastic_sound();
    test.assert_returns_everything_after((third, pool, stream));
}

#[test]
fn a_pool_may_go_while_it_sleeps() {
    let (test, stream, pool, memory) = filled_pool();
    let id = pool.id();
    pool.sleep(Contents::Keep).expect("it can sleep");
    drop(pool);
    let [first, second, third] = memory;
    drop((first, second));
    test.allocator.empty_cache().expect("nothing fails");
    let pool = test.allocator.open_pool(id).expect("something lives in it");
    assert!(pool.is_asleep());
    pool.wake().expect("there is memory");
    assert_eq!(test.content(&third, &stream), Some(3));
    pool.sleep(Contents::Keep).expect("it can sleep");
    drop((pool, third));
    test.allocator.empty_cache().expect("nothing fails");
    assert!(matches!(test.allocator.open_pool(id), Err(Error::Pool { .. })));
    let next = test.allocator.create_pool();
    let memory = next.allocate(4 * MIB, &stream).expect("its heap is used again");
    test.fill(&memory, 5, &stream);
    assert_eq!(test.content(&memory, &stream), Some(5));
    test.assert_elastic_sound();
    test.assert_returns_everything_after((memory, next, stream));
}

#[test]
fn an_allocator_may_go_while_a_pool_sleeps() {
    let (test, stream, pool, memory) = filled_pool();
    pool.sleep(Contents::Keep).expect("it can sleep");
    drop((pool, stream));
    let TestAllocator { device, allocator, .. } = test;
    drop(allocator);
    drop(memory);
    assert_eq!(device.live(), cachette_hal_host::Live::default());
}

#[test]
fn a_graph_runs_after_its_pool_has_slept() {
    let (test, [stream]) = TestAllocator::elastic_on(HostConfig::default(), "").with_streams();
    let (pool, capture) = test.capture(&stream);
    let kept = test.allocate(3 * MIB, &stream);
    let passing = test.allocate(2 * MIB, &stream);
    test.fill(&passing, 6, &stream);
    test.fill(&kept, 8, &stream);
    drop(passing);
    assert_eq!(problem(pool.sleep(Contents::Keep)), PoolProblem::Captured);
    let graph = capture.end().expect("it is whole");
    // SAFETY: 1. it names memory of its pool alone. 2. it runs alone. 3. the stream is the allocator's.
    let run = || unsafe { graph.launch(&stream) };
    run().expect("it is queued");
    let slept = pool.sleep(Contents::Keep).expect("it can sleep");
    assert_eq!(slept.saved, slept.released, "all that a graph may read is kept");
    assert!(matches!(run(), Err(Error::Pool { why: PoolProblem::Asleep, .. })));
    pool.empty_cache().expect("nothing fails");
    assert_eq!(pool.wake(), Ok(slept.released), "what graphs may use is kept although it is free");
    assert_eq!(test.content(&kept, &stream), Some(8));
    test.fill(&kept, 1, &stream);
    run().expect("it is queued");
    assert_eq!(test.content(&kept, &stream), Some(8));
    drop((graph, kept, pool, stream));
    test.allocator.empty_cache().expect("nothing fails");
    test.assert_returns_everything();
}

#[test]
fn pools_of_one_tag_sleep_and_wake_as_one() {
    let (test, [stream]) = TestAllocator::elastic_on(HostConfig::default(), "").with_streams();
    let options = || PoolOptions::new().tag("weights");
    let pools = [(); 2].map(|()| test.allocator.create_pool_with(options()).unwrap());
    let other = test.allocator.create_pool();
    let memory = [(&pools[0], 2), (&pools[1], 4)].map(|(pool, size)| pool.allocate(size * MIB, &stream).unwrap());
    let apart = other.allocate(2 * MIB, &stream).unwrap();
    let slept = test.allocator.sleep_tagged("weights", Contents::Keep).expect("they can sleep");
    assert_eq!((slept.released, slept.saved), (6 * MIB, 6 * MIB), "the sum of both");
    assert!(pools.iter().all(Pool::is_asleep) && !other.is_asleep());
    assert_eq!(test.allocator.wake_tagged("weights").expect("there is memory"), 6 * MIB);
    assert!(!pools.iter().any(Pool::is_asleep));
    assert_eq!(problem(test.allocator.wake_tagged("wieghts")), PoolProblem::NoTag);
    drop((memory, apart));
}

#[test]
fn a_tag_of_which_one_pool_cannot_sleep_stays_awake() {
    let (test, [stream]) = TestAllocator::elastic_on(HostConfig::default(), "").with_streams();
    let options = || PoolOptions::new().tag("phase");
    let pools = [(); 2].map(|()| test.allocator.create_pool_with(options()).unwrap());
    let memory = pools[0].allocate(2 * MIB, &stream).unwrap();
    test.allocator.set_config(&config(""));
    let direct = pools[1].allocate(2 * MIB, &stream).unwrap();
    let failed = test.allocator.sleep_tagged("phase", Contents::Keep);
    assert_eq!(problem(failed), PoolProblem::NotElastic);
    assert!(!pools.iter().any(Pool::is_asleep));
    drop((memory, direct));
}

#[test]
fn a_pool_with_segments_of_the_device_cannot_sleep() {
    let test = TestAllocator::new();
    let (stream, pool, memory) = filled(&test);
    assert_eq!(problem(pool.sleep(Contents::Keep)), PoolProblem::NotElastic);
    assert_filled(&test, &memory, &stream);
    assert!(!pool.is_asleep());
}

#[test]
fn progress_is_told_up_to_the_end() {
    let (test, _stream, pool, _memory) = filled_pool();
    let held = test.device.physical_bytes();
    let check = |told: Vec<Progress>| {
        assert!(told.windows(2).all(|pair| pair[0].done < pair[1].done));
        let last = told.last().expect("something was told");
        assert_eq!((last.done, last.total), (held, held));
    };
    let mut told = Vec::new();
    pool.sleep_with(Contents::Keep, |progress| told.push(progress)).expect("it can sleep");
    check(std::mem::take(&mut told));
    pool.wake_with(|progress| told.push(progress)).expect("there is memory");
    check(told);
}

#[test]
fn threads_get_memory_or_an_error_while_a_pool_falls_asleep() {
    let test = TestAllocator::elastic_on(HostConfig::default().capacity(GIB), "");
    let pool = test.allocator.create_pool();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&done);
        for byte in 1..=3_u64 {
            let (test, pool, done) = (&test, &pool, &done);
            scope.spawn(move || {
                let stream = test.stream();
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    match pool.allocate(byte * MIB, &stream) {
                        Ok(memory) => drop(memory),
                        Err(Error::Pool { why, .. }) => assert_eq!(why, PoolProblem::Asleep),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        for _ in 0..50 {
            pool.sleep(Contents::Keep).expect("it can sleep");
            assert_eq!(pool.stats().reserved_bytes, 0);
            pool.wake().expect("there is memory");
        }
    });
    test.assert_elastic_sound();
}

#[test]
fn z_a_tag_is_found_although_a_pool_with_it_has_just_ended() {
    let test = TestAllocator::with(ELASTIC);
    let stream = test.stream();
    let tagged = || test.allocator.create_pool_with(PoolOptions::new().tag("weights")).unwrap();
    let (first, second) = (tagged(), tagged());
    let _memory = second.allocate(4 * MIB, &stream).unwrap();
    let hold = test.hold(&stream);
    drop(first.allocate(4 * MIB, &stream).unwrap());
    drop(first);
    drop(hold);
    let slept = test.allocator.sleep_tagged("weights", Contents::Keep);
    assert!(second.is_asleep(), "{slept:?}");
}

#[test]
fn memory_that_was_idle_before_a_sleep_does_not_wake() {
    let test = TestAllocator::elastic_on(HostConfig::default(), "");
    let (stream, pool) = (test.stream(), test.allocator.create_pool());
    let [idle, kept] = [8, 4].map(|size| pool.allocate(size * MIB, &stream).unwrap());
    drop(idle);
    pool.sleep(Contents::Keep).expect("it can sleep");
    assert_eq!(pool.wake().expect("there is memory"), 4 * MIB);
    assert_eq!(test.device.physical_bytes(), 4 * MIB);
    drop(kept);
}
