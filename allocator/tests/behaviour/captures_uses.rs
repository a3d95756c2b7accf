//! Uses recorded while streams are captured: events are recorded only after the capture ends.

use cachette::hal::{Call, CaptureMode, ErrorKind};
use cachette_hal_host::{Hold, HostConfig};

use crate::fixture::{Allocation, MIB, Pool, Stream, TestAllocator, assert_consistent, begin_capture};

const CALLS: [Call; 4] = [Call::Record, Call::Poll, Call::Wait, Call::StreamWait];

/// A stepped device: events pass only when the test runs the device.
fn stepped(text: &str) -> TestAllocator {
    TestAllocator::on(HostConfig::default().stepped(3), text)
}

#[test]
fn e5_memory_freed_in_a_capture_with_uses_waits_for_its_end() {
    for test in TestAllocator::both("") {
        let [stream, side] = test.streams();
        let (pool, capture) = test.capture(&stream);
        test.follow(&side, &stream);
        let memory = test.allocate(MIB, &stream);
        let address = memory.address();
        memory.record_stream(&side);
        test.fill(&memory, 1, &side);
        let before = CALLS.map(|call| test.device.calls(call));
        drop(memory);
        let stats = test.stats();
        assert_eq!((stats.allocation.all.current, stats.active.all.current), (0, 1), "it is active until then");
        assert!(pool.check_live_allocations(&[]));
        let second = test.allocate(MIB, &stream);
        assert_ne!(second.address(), address, "it is not free before the end");
        let calls = CALLS.map(|call| test.device.calls(call));
        assert_eq!(calls, before, "nothing is marked and nothing is asked");
        test.follow(&stream, &side);
        let graph = capture.end().expect("it is whole");
        let third = pool.allocate(MIB, &stream).expect("there is room");
        assert_eq!(third.address(), address, "E7: the graph's own use is not waited for");
        drop((second, third, graph));
        test.assert_sound();
    }
}

/// Memory of a pool for graphs that a stream used before any capture, and that stream, which is held.
pub(crate) struct UsedBefore {
    pub(crate) streams: [Stream; 2],
    pub(crate) pool: Pool,
    pub(crate) memory: Allocation,
    pub(crate) hold: Hold,
}

impl UsedBefore {
    pub(crate) fn new(test: &TestAllocator) -> Self {
        let (streams, pool) = (test.streams(), test.allocator.create_capture_pool());
        let memory = pool.allocate(MIB, &streams[0]).expect("there is room");
        let hold = test.hold(&streams[1]);
        memory.record_stream(&streams[1]);
        Self { streams, pool, memory, hold }
    }
}

/// Frees memory in a capture that a held stream used before it, and perhaps uses again in the capture.
pub(crate) fn free_in_a_capture_after_a_use(test: &TestAllocator, joins: bool) {
    let UsedBefore { streams: [stream, side], pool, memory, hold } = UsedBefore::new(test);
    let address = memory.address();
    let capture = begin_capture(&pool, &stream);
    if joins {
        test.follow(&side, &stream);
        memory.record_stream(&side);
    }
    drop(memory);
    if joins {
        test.follow(&stream, &side);
    }
    let inside = test.allocate(MIB, &stream);
    assert_ne!(inside.address(), address);
    let graph = capture.end().expect("it is whole");
    let after = pool.allocate(MIB, &stream).expect("there is room");
    assert_ne!(after.address(), address, "the side stream is still held");
    drop(hold);
    test.device.run_until_idle();
    let again = pool.allocate(MIB, &stream).expect("there is room");
    assert_eq!(again.address(), address);
    drop((inside, after, again, graph));
    assert_consistent(&test.allocator);
}

#[test]
fn e7_a_use_from_before_the_capture_is_waited_for_after_it() {
    let test = stepped("");
    free_in_a_capture_after_a_use(&test, false);
    test.assert_sound();
}

#[test]
fn e7_a_use_is_kept_although_the_stream_was_captured_once() {
    let (test, [stream, side]) = stepped("").with_streams();
    let (pool, capture) = test.capture(&stream);
    test.follow(&side, &stream);
    let memory = test.allocate(MIB, &stream);
    let address = memory.address();
    memory.record_stream(&side);
    test.follow(&stream, &side);
    let first = capture.end().expect("it is whole");
    // Now the side stream uses it outside a capture, and a second capture is active when it is freed.
    let held = test.hold(&side);
    memory.record_stream(&side);
    let capture = begin_capture(&pool, &stream);
    drop(memory);
    let second = capture.end().expect("it is whole");
    let mut after = None;
    let marked = test.calls_of(Call::Record, || after = pool.allocate(MIB, &stream).ok());
    assert_eq!(marked, 1, "the stream is one user");
    assert_ne!(after.as_ref().expect("there is room").address(), address, "the side stream is still held");
    drop(held);
    test.device.run_until_idle();
    drop((after, first, second));
}

#[test]
fn e7_a_use_from_before_the_capture_outlasts_a_failed_query() {
    for nth in 1..5 {
        let test = stepped("");
        let UsedBefore { streams: [stream, side], pool, memory, hold } = UsedBefore::new(&test);
        let (address, inner) = (memory.address(), test.stream());
        let capture = begin_capture(&pool, &stream);
        test.follow(&inner, &stream);
        memory.record_stream(&inner);
        drop(memory);
        test.follow(&stream, &inner);
        let graph = capture.end().expect("it is whole");
        // The driver fails to say once that the side stream is captured. An announced capture makes the allocator ask.
        let other_pool = test.capture(&test.stream());
        test.begin_unannounced(&side, CaptureMode::Relaxed);
        test.device.fail_next(Call::CaptureStatus, nth, ErrorKind::Other);
        let first = pool.allocate(MIB, &stream);
        test.device.clear_failures();
        test.end_unannounced(&side);
        let second = pool.allocate(MIB, &stream).expect("there is room");
        let addresses = [first.as_ref().ok(), Some(&second)].map(|memory| memory.map(Allocation::address));
        assert!(!addresses.contains(&Some(address)), "{nth}: the side stream is still held");
        drop((hold, first, second, graph, other_pool));
        test.device.run_until_idle();
    }
}

#[test]
fn e7_default_memory_that_a_capture_uses_waits_for_its_end() {
    let (test, [stream, captured]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_capture_pool();
    let memory = test.allocate(MIB, &stream);
    let address = memory.address();
    let capture = begin_capture(&pool, &captured);
    memory.record_stream(&captured);
    let marked = test.calls_of(Call::Record, || drop(memory));
    assert_eq!(marked, 0);
    assert_ne!(test.allocate(MIB, &stream).address(), address);
    assert!(test.is_captured(&captured));
    capture.end().expect("it is whole");
    let all = [test.allocate(MIB, &stream), test.allocate(MIB, &stream)];
    assert!(all.iter().any(|memory| memory.address() == address));
    test.assert_sound();
}

#[test]
fn e7_uses_come_free_across_two_captures_that_share_a_pool() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_capture_pool();
    let mut addresses = Vec::new();
    let mut graphs = Vec::new();
    for _ in 0..3 {
        let capture = begin_capture(&pool, &stream);
        test.follow(&side, &stream);
        let memory = test.allocate(MIB, &stream);
        addresses.push(memory.address());
        memory.record_stream(&side);
        test.fill(&memory, 1, &side);
        drop(memory);
        test.follow(&stream, &side);
        graphs.push(capture.end().expect("it is whole"));
        // A request between captures makes the pool process its pending blocks.
        drop(pool.allocate(512, &stream).expect("there is room"));
    }
    assert!(addresses.iter().all(|address| *address == addresses[0]));
    test.assert_sound();
}

#[test]
fn e5_events_of_other_streams_are_polled_during_a_capture() {
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
        let (test, [stream, other, side]) = stepped("").with_streams();
        let memory = test.allocate(MIB, &other);
        let address = memory.address();
        memory.record_stream(&side);
        test.fill(&memory, 1, &side);
        drop(memory);
        let pool = test.allocator.create_capture_pool();
        let capture = pool.begin_capture(&stream, mode).expect("it begins");
        test.device.run_until_idle();
        let again = test.allocate(MIB, &other);
        assert_eq!(again.address(), address);
        assert!(test.is_captured(&stream), "{mode:?}");
        capture.end().expect("it is whole");
    }
}

#[test]
fn e5_no_event_of_the_same_stream_is_polled_during_its_capture() {
    let (test, [stream, side]) = stepped("").with_streams();
    let pool = test.allocator.create_capture_pool();
    let memory = pool.allocate(MIB, &stream).expect("there is room");
    let address = memory.address();
    memory.record_stream(&side);
    test.fill(&memory, 1, &side);
    drop(memory);
    let capture = begin_capture(&pool, &stream);
    test.device.run_until_idle();
    let polls = test.calls_of(Call::Poll, || {
        assert_ne!(test.allocate(MIB, &stream).address(), address);
        capture.end().expect("it is whole");
    });
    assert_eq!(polls, 0);
    let both = [(); 2].map(|()| pool.allocate(MIB, &stream).expect("there is room"));
    assert!(both.iter().any(|memory| memory.address() == address));
}

#[test]
fn e5_memory_released_behind_other_work_breaks_no_capture() {
    let (test, [stream, side]) = stepped("").with_streams();
    let pool = test.allocator.create_capture_pool();
    let memory = pool.allocate(MIB, &stream).expect("there is room");
    test.fill(&memory, 1, &side);
    memory.release_after(&[&side]).expect("a point is marked");
    let capture = begin_capture(&pool, &stream);
    let inside = test.allocate(MIB, &stream);
    test.fill(&inside, 2, &stream);
    assert!(test.is_captured(&stream));
    let graph = capture.end().expect("it is whole");
    test.device.run_until_idle();
    drop((inside, graph));
    test.assert_sound();
}
