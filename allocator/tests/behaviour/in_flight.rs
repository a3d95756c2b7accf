//! Allocations and frees of device memory in progress: a request waits for them before it fails.

use std::sync::{Arc, Mutex, PoisonError, mpsc};

use cachette::hal::{Call, Device, DevicePtr, ErrorKind};
use cachette::source::{AllocContext, FunctionSource, SourceError};
use cachette::{Error, PoolOptions};
use cachette_hal_host::HostConfig;

use crate::fixture::threads::{Started, in_time, is_waiting, start};
use crate::fixture::{ELASTIC, MIB, Pool, TestAllocator};

/// A pool whose source blocks in every request until the test sends an answer.
struct Slow {
    pool: Pool,
    entered: mpsc::Receiver<()>,
    answer: mpsc::Sender<bool>,
}

impl Slow {
    /// The source returns device memory or fails, according to the answer. `inside` runs before that.
    fn new(test: &TestAllocator, inside: impl Fn() + Send + Sync + 'static) -> Self {
        let (enter, entered) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let answers = Mutex::new(answers);
        let (makes, frees) = (test.device.clone(), test.device.clone());
        let allocate = move |bytes, _: &AllocContext| -> Result<DevicePtr, SourceError> {
            enter.send(()).expect("the test listens");
            let answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
            let served = answers.recv().unwrap_or(false);
            inside();
            let none = |_| SourceError::out_of_memory("none");
            served
                .then(|| makes.allocate(bytes))
                .map_or_else(|| Err(SourceError::out_of_memory("none")), |made| made.map_err(none))
        };
        let free = move |ptr, _, _: &AllocContext| {
            // SAFETY: 1. it was made above. 2. the allocator frees only unused memory.
            unsafe { frees.free(ptr) }.map_err(|_| SourceError::other("stuck", "try again"))
        };
        // SAFETY: 1. 2. 3. the device's own memory has these properties.
        let source = Arc::new(unsafe { FunctionSource::new("slow", allocate, free) });
        let options = PoolOptions::new().source(source);
        let pool = test.allocator.create_pool_with(options);
        Self { pool: pool.expect("its name is new"), entered, answer }
    }
}

/// Allocates on a new thread and a new stream. Returns the result of the request.
fn ask(test: &TestAllocator, bytes: u64) -> Started<Result<(), Error>> {
    let (allocator, stream) = (test.allocator.clone(), test.stream());
    start(move || allocator.allocate(bytes, &stream).map(std::mem::forget))
}

fn is_exhausted(answer: &Result<(), Error>) -> bool {
    matches!(answer, Err(Error::OutOfMemory(_)))
}

#[test]
fn m10_requests_wait_for_segments_on_their_way_back() {
    for text in ["", ELASTIC] {
        let (test, [stream]) = TestAllocator::of(24 * MIB, text).with_streams();
        drop(test.allocate(24 * MIB, &stream));
        // The segment is unused, but its stream is busy: the first request waits for the stream.
        let hold = test.hold(&stream);
        let first = ask(&test, 12 * MIB);
        assert!(is_waiting(&first), "{text}");
        // No segment is left to release, so the second request can only wait for the first.
        let second = ask(&test, 12 * MIB);
        assert!(is_waiting(&second), "{text}");
        hold.release();
        first.recv().expect("it answers").expect("both fit");
        second.recv().expect("it answers").expect("both fit");
    }
}

#[test]
fn m10_a_request_gets_what_another_thread_releases() {
    let (test, hook) = TestAllocator::hooked(HostConfig::default().capacity(64 * MIB), ELASTIC);
    let [one, two] = test.streams();
    drop(test.allocate(48 * MIB, &one));
    one.synchronize().unwrap();
    // The chunks are in no list while their fence is recorded.
    let also = test.allocator.clone();
    let request = hook.start(Call::Record, Some(one.handle()), move || also.allocate(32 * MIB, &two).map(drop));
    test.allocator.empty_cache().unwrap();
    request.result().expect("all memory is free");
}

#[test]
fn m10_a_request_waits_for_a_block_whose_fence_another_thread_records() {
    for text in ["", ELASTIC] {
        let (test, hook) = TestAllocator::hooked(HostConfig::default().capacity(20 * MIB), text);
        let [own, side] = test.streams();
        let memory = test.allocate(20 * MIB, &own);
        memory.record_stream(&side);
        test.device.fail_next(Call::Record, 1, ErrorKind::Other);
        drop(memory);
        // The next call records the missing fence.
        let also = test.allocator.clone();
        let request = hook.start(Call::Record, Some(side.handle()), move || also.allocate(20 * MIB, &own).map(drop));
        test.allocator.empty_cache().unwrap();
        request.result().expect("all memory is free");
    }
}

#[test]
fn m10_a_request_that_may_not_block_waits_for_no_release() {
    let (test, [stream]) = TestAllocator::of(24 * MIB, "never_block:True").with_streams();
    drop(test.allocate(24 * MIB, &stream));
    let hold = test.hold(&stream);
    let allocator = test.allocator.clone();
    let emptied = start(move || allocator.empty_cache());
    assert!(is_waiting(&emptied));
    let refused = ask(&test, 12 * MIB).recv().expect("it answers");
    assert!(is_exhausted(&refused), "{refused:?}");
    hold.release();
    assert_eq!(emptied.recv().expect("it answers"), Ok(24 * MIB));
}

#[test]
fn m4_an_attempt_that_fails_takes_no_room_from_others() {
    for text in ["", "expandable_segments:True", "throw_on_cudamalloc_oom:True"] {
        let test = TestAllocator::with(text);
        test.allocator.set_memory_limit(Some(64 * MIB));
        let slow = Slow::new(&test, || ());
        let (pool, stream) = (slow.pool, test.stream());
        let attempt = start(move || pool.allocate(60 * MIB, &stream).map(drop));
        slow.entered.recv().expect("the source is asked");
        let other = ask(&test, 20 * MIB);
        assert!(is_waiting(&other), "{text}: 4 MiB may be all that is left");
        slow.answer.send(false).expect("the source listens");
        let refused = attempt.recv().expect("it answers");
        assert!(is_exhausted(&refused), "{text}: {refused:?}");
        let served = other.recv().expect("it answers");
        assert!(served.is_ok(), "{text}: nothing is held: {served:?}");
    }
}

#[test]
fn m4_a_request_of_less_than_a_page_waits_for_room_for_a_page() {
    let test = TestAllocator::with(ELASTIC);
    test.allocator.set_memory_limit(Some(61 * MIB));
    let slow = Slow::new(&test, || ());
    let (pool, stream) = (slow.pool, test.stream());
    let attempt = start(move || pool.allocate(60 * MIB, &stream).map(drop));
    slow.entered.recv().expect("the source is asked");
    let other = ask(&test, MIB);
    assert!(is_waiting(&other), "a page is larger than what is left");
    slow.answer.send(false).expect("the source listens");
    attempt.recv().expect("it answers").expect_err("it is refused");
    other.recv().expect("it answers").expect("nothing is held");
}

#[test]
fn m4_an_attempt_that_succeeds_keeps_its_room() {
    let test = TestAllocator::new();
    test.allocator.set_memory_limit(Some(64 * MIB));
    let slow = Slow::new(&test, || ());
    let (pool, stream) = (slow.pool, test.stream());
    let attempt = start(move || {
        let made = pool.allocate(60 * MIB, &stream);
        made.map(|made| (made, pool))
    });
    slow.entered.recv().expect("the source is asked");
    let other = ask(&test, 20 * MIB);
    assert!(is_waiting(&other));
    slow.answer.send(true).expect("the source listens");
    let held = attempt.recv().expect("it answers").expect("it is served");
    let refused = other.recv().expect("it answers");
    assert!(is_exhausted(&refused), "{refused:?}");
    drop(held);
}

#[test]
fn m4_no_request_waits_for_room_that_would_not_do() {
    let test = TestAllocator::new();
    test.allocator.set_memory_limit(Some(64 * MIB));
    let stream = test.stream();
    let held = test.allocate(50 * MIB, &stream);
    let slow = Slow::new(&test, || ());
    let (pool, side) = (slow.pool, test.stream());
    let attempt = start(move || pool.allocate(10 * MIB, &side).map(drop));
    slow.entered.recv().expect("the source is asked");
    let refused = ask(&test, 20 * MIB).recv().expect("it does not wait");
    assert!(is_exhausted(&refused), "{refused:?}");
    slow.answer.send(false).expect("the source listens");
    attempt.recv().expect("it answers").expect_err("it is refused");
    drop(held);
}

#[test]
fn m4_a_source_may_use_the_heap_of_a_request_that_waits() {
    let test = TestAllocator::new();
    test.allocator.set_memory_limit(Some(64 * MIB));
    let [stream, waits] = test.streams();
    let (allocator, shared) = (test.allocator.clone(), waits.clone());
    let tables = move || drop(allocator.allocate(MIB, &shared).expect("there is room"));
    let Slow { pool, entered, answer } = Slow::new(&test, tables);
    let attempt = start(move || pool.allocate(60 * MIB, &stream).map(drop));
    entered.recv().expect("the source is asked");
    let allocator = test.allocator.clone();
    let other = start(move || allocator.allocate(20 * MIB, &waits).map(drop));
    assert!(is_waiting(&other));
    answer.send(false).expect("the source listens");
    // The next request fails at once.
    drop(answer);
    let ended = in_time(move || (attempt.recv(), other.recv()));
    let (attempt, other) = ended.expect("no thread waits for another that waits for it");
    attempt.expect("it answers").expect_err("it is refused");
    other.expect("it answers").expect("there is room");
}
