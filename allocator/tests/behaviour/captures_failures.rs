//! Captures that fail: refused by the driver, broken, dropped, or disturbed by other calls.

use std::sync::Arc;

use cachette::Error;
use cachette::hal::{Call, CaptureMode, Device, ErrorKind};
use cachette::pool::PoolProblem;
use cachette_hal_host::HostConfig;

use crate::fixture::{ELASTIC, MIB, Pool, Stream, TestAllocator, begin_capture, launch};

/// Checks that streams, pool and allocator can be used as if nothing had happened.
fn assert_usable(test: &TestAllocator, pool: &Pool, stream: &Stream) {
    assert_eq!(pool.use_count(), 1);
    let outside = test.allocate(MIB, stream);
    assert!(!pool.check_live_allocations(&[outside.address()]), "no request is led to it");
    test.fill(&outside, 1, stream);
    assert_eq!(test.content(&outside, stream), Some(1));
    let (graph, inside) = test.filling(pool, stream, 2);
    launch(&graph, stream);
    assert_eq!(test.content(&inside, stream), Some(2));
    drop((inside, outside, graph));
    test.assert_sound();
    assert_eq!(test.device.live().graphs, 0);
}

fn kind(result: Result<impl Sized, Error>) -> Option<ErrorKind> {
    match result.err() {
        Some(Error::Device(error)) => Some(error.kind()),
        _ => None,
    }
}

/// Breaks every capture that binds this thread.
fn break_it(test: &TestAllocator) {
    let broken = test.device.synchronize_device();
    assert!(broken.is_err_and(|error| error.kind() == ErrorKind::CaptureForbids));
}

/// A graph runs that uses memory of its pool. Both go, but the wait for the graph fails, so the memory stays.
fn keep_by_a_failed_wait(test: &TestAllocator, bytes: u64, stream: &Stream) {
    let (pool, capture) = test.capture(stream);
    drop(test.allocate(bytes, stream));
    let graph = capture.end().expect("it is whole");
    launch(&graph, stream);
    drop(pool);
    test.device.fail_next(Call::Wait, 1, ErrorKind::Other);
    drop(graph);
}

#[test]
fn memory_that_a_failed_wait_kept_goes_with_the_next_emptying() {
    for text in ["", "never_block:True"] {
        let (test, [stream]) = TestAllocator::with(text).with_streams();
        keep_by_a_failed_wait(&test, MIB, &stream);
        assert_eq!(test.stats().reserved_bytes.all.current, 2 * MIB, "{text}");
        stream.synchronize().expect("it runs dry");
        test.allocator.empty_cache().expect("nothing fails any more");
        assert_eq!(test.device.physical_bytes(), 0, "{text}");
        test.assert_sound();
    }
}

#[test]
fn a_failed_wait_for_a_graph_keeps_no_other_memory() {
    let (test, [stream, other]) = TestAllocator::new().with_streams();
    let pools = [(); 2].map(|()| test.allocator.create_capture_pool());
    let graphs = pools.each_ref().map(|pool| test.filling(pool, &stream, 1).0);
    for graph in &graphs {
        launch(graph, &stream);
    }
    drop(test.allocate(12 * MIB, &other));
    // The end of each pool waits for its graph, and so does the emptying.
    for nth in 1..=3 {
        test.device.fail_next(Call::Wait, nth, ErrorKind::Other);
    }
    drop((pools, graphs));
    assert_eq!(test.stats().reserved_bytes.all.current, 16 * MIB);
    assert_eq!(kind(test.allocator.empty_cache()), Some(ErrorKind::Other));
    assert_eq!(test.stats().reserved_bytes.all.current, 2 * MIB, "one graph may still run");
    test.allocator.empty_cache().expect("nothing fails any more");
    assert_eq!(test.device.physical_bytes(), 0);
}

#[test]
fn p6_memory_that_a_failed_wait_kept_serves_a_request_that_needs_it() {
    for text in ["", ELASTIC] {
        let (test, [stream, other]) = TestAllocator::of(32 * MIB, text).with_streams();
        keep_by_a_failed_wait(&test, 20 * MIB, &stream);
        assert_eq!(test.stats().reserved_bytes.all.current, 20 * MIB, "{text}");
        let served = test.allocator.allocate(20 * MIB, &other);
        assert!(served.is_ok(), "{text}: {served:?}");
    }
}

#[test]
fn work_after_a_graph_does_not_keep_the_memory_of_its_pool() {
    let host = HostConfig::default();
    let (test, [stream, other]) = TestAllocator::on(host, "never_block:True").with_streams();
    let (pool, capture) = test.capture(&stream);
    drop(test.allocate(MIB, &stream));
    let graph = capture.end().expect("it is whole");
    let before = test.hold(&other);
    launch(&graph, &other);
    drop(graph);
    test.device.fail_next(Call::Wait, 1, ErrorKind::Other);
    drop(pool);
    test.allocator.empty_cache().expect("nothing fails");
    assert_eq!(test.device.physical_bytes(), 2 * MIB, "the graph has not run");
    let third = test.stream();
    test.follow(&third, &other);
    let _after = test.hold(&other);
    before.release();
    third.synchronize().expect("the graph has run");
    test.allocator.empty_cache().expect("nothing fails");
    assert_eq!(test.device.physical_bytes(), 0);
}

/// Captures and launches a graph, and allocates from its pool.
fn work(test: &TestAllocator, pool: &Pool, stream: &Stream, side: &Stream) -> Result<(), Error> {
    let capture = pool.begin_capture(stream, CaptureMode::Global)?;
    let memory = test.allocator.allocate(MIB, stream)?;
    memory.record_stream(side);
    drop(memory);
    let graph = capture.end()?;
    // SAFETY: 1. it names no memory. 2. it is the only one. 3. the stream is the allocator's.
    unsafe { graph.launch(stream) }?;
    let more = pool.allocate(12 * MIB, stream)?;
    more.record_stream(side);
    drop(more);
    drop((graph, pool.allocate(12 * MIB, stream)?));
    test.allocator.empty_cache()?;
    Ok(())
}

#[test]
fn p12_any_single_failure_of_the_driver_loses_nothing() {
    let calls = [
        Call::BeginCapture,
        Call::Launch,
        Call::CaptureStatus,
        Call::ExchangeCaptureMode,
        Call::Allocate,
        Call::Free,
        Call::CreateEvent,
        Call::Record,
        Call::Poll,
        Call::Wait,
    ];
    for call in calls {
        for nth in 1.. {
            let (test, [stream, side]) = TestAllocator::on(HostConfig::default().stepped(4), "").with_streams();
            let pool = test.allocator.create_capture_pool();
            let before = test.device.calls(call);
            test.device.fail_next(call, nth, ErrorKind::Refused);
            let worked = work(&test, &pool, &stream, &side);
            let reached = test.device.calls(call) - before >= nth;
            test.device.clear_failures();
            assert!(reached || worked.is_ok(), "{call} {nth}: {worked:?}");
            assert_usable(&test, &pool, &stream);
            test.assert_returns_everything_after((pool, stream, side));
            if !reached {
                break;
            }
        }
    }
}

#[test]
fn p12_the_default_stream_is_refused() {
    let test = TestAllocator::new();
    let pool = test.allocator.create_capture_pool();
    let default = test.allocator.default_stream().expect("there is one");
    let refused = pool.begin_capture(&default, CaptureMode::Global);
    let Err(Error::Pool { pool: id, why }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((id, why), (pool.id(), PoolProblem::DefaultStream));
    assert_usable(&test, &pool, &test.stream());
}

#[test]
fn p12_a_capture_that_the_driver_refuses_changes_nothing() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_pool();
    test.device.fail_next(Call::BeginCapture, 1, ErrorKind::Other);
    let refused = pool.begin_capture(&stream, CaptureMode::Global);
    assert_eq!(kind(refused), Some(ErrorKind::Other));
    drop(pool.allocate(12 * MIB, &stream).expect("there is room"));
    let emptied = pool.empty_cache().expect("nothing fails");
    assert_eq!(emptied, 12 * MIB, "no graph was made that needs it");
    assert_usable(&test, &pool, &stream);
}

#[test]
fn p12_a_capture_that_the_driver_refuses_leaves_the_keep_of_another_thread() {
    for text in ["", ELASTIC] {
        let (test, hook) = TestAllocator::hooked(HostConfig::default(), text);
        let (stream, pool) = (test.stream(), Arc::new(test.allocator.create_capture_pool()));
        let memory = pool.allocate(4 * MIB, &stream).expect("there is room");
        test.device.fail_next(Call::BeginCapture, 1, ErrorKind::Other);
        let also = Arc::clone(&pool);
        let kept = hook.start(Call::BeginCapture, None, move || also.keep());
        let refused = pool.begin_capture(&stream, CaptureMode::Global);
        assert_eq!(kind(refused), Some(ErrorKind::Other), "{text}");
        kept.result();
        drop(memory);
        stream.synchronize().expect("it runs dry");
        assert_eq!(pool.empty_cache(), Ok(0), "{text}: graphs may use the memory");
    }
}

#[test]
fn p12_a_capture_whose_route_was_ended_loses_no_graph() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let (pool, capture) = test.capture(&stream);
    test.allocator.end_allocate_to_pool(pool.id()).expect("the capture has begun it");
    capture.end().expect_err("the route is gone");
    assert_eq!(test.device.live().graphs, 0);
    test.assert_returns_everything_after((pool, stream));
}

#[test]
fn p12_a_stream_is_captured_once_at_a_time() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let [pool, other] = [(); 2].map(|()| test.allocator.create_capture_pool());
    let capture = begin_capture(&pool, &stream);
    let refused = other.begin_capture(&stream, CaptureMode::Global);
    assert_eq!(kind(refused), Some(ErrorKind::InvalidValue));
    let memory = test.allocate(MIB, &stream);
    assert!(pool.check_live_allocations(&[memory.address()]), "the first goes on");
    capture.end().expect("it is whole");
    drop(memory);
    assert_usable(&test, &pool, &stream);
    assert_usable(&test, &other, &stream);
}

#[test]
fn p12_a_broken_capture_is_an_error_and_no_more() {
    for test in TestAllocator::both("") {
        let [stream, side] = test.streams();
        let (pool, capture) = test.capture(&stream);
        let memory = test.allocate(MIB, &stream);
        let used = test.allocate(MIB, &stream);
        used.record_stream(&side);
        break_it(&test);
        drop(used);
        drop(memory);
        drop(test.allocate(MIB, &stream));
        assert_eq!(kind(capture.end()), Some(ErrorKind::CaptureBroken));
        assert_usable(&test, &pool, &stream);
        drop(pool);
        test.allocator.empty_cache().expect("nothing fails");
        assert_eq!(test.device.physical_bytes(), 0);
    }
}

#[test]
fn p12_a_stream_that_is_not_joined_breaks_its_capture_alone() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let (pool, capture) = test.capture(&stream);
    test.follow(&side, &stream);
    let memory = test.allocate(MIB, &side);
    test.fill(&memory, 1, &side);
    assert_eq!(kind(capture.end()), Some(ErrorKind::CaptureBroken));
    drop(memory);
    assert_usable(&test, &pool, &stream);
    assert_usable(&test, &pool, &side);
}

#[test]
fn p12_a_capture_that_is_dropped_is_over() {
    for test in TestAllocator::both("") {
        let stream = test.stream();
        let (pool, capture) = test.capture(&stream);
        let memory = test.allocate(MIB, &stream);
        test.fill(&memory, 9, &stream);
        drop(capture);
        assert!(!test.is_captured(&stream));
        drop(memory);
        assert_usable(&test, &pool, &stream);
        let broken = begin_capture(&pool, &stream);
        break_it(&test);
        drop(broken);
        assert_usable(&test, &pool, &stream);
    }
}

#[test]
fn p12_an_end_or_a_launch_that_fails_can_be_gone_on_from() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_capture_pool();
    let (graph, memory) = test.filling(&pool, &stream, 4);
    test.device.fail_next(Call::Launch, 1, ErrorKind::Other);
    // SAFETY: 1. it names memory of its pool alone. 2. it is the only one. 3. the stream is the allocator's.
    let failed = unsafe { graph.launch(&stream) };
    assert_eq!(kind(failed), Some(ErrorKind::Other));
    launch(&graph, &stream);
    assert_eq!(test.content(&memory, &stream), Some(4));
    drop((graph, memory));
    assert_usable(&test, &pool, &stream);
}

#[test]
fn m5_exhaustion_and_pressure_do_not_break_a_capture() {
    let (test, [stream, other]) = TestAllocator::of(32 * MIB, "").with_streams();
    drop(test.allocate(20 * MIB, &other));
    let (pool, capture) = test.capture(&stream);
    let kept = test.allocate(26 * MIB, &other);
    assert!(test.is_captured(&stream), "segments of other streams went back meanwhile");
    let refused = test.allocator.allocate(20 * MIB, &stream);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
    assert!(test.is_captured(&stream));
    let memory = test.allocate(MIB, &stream);
    let graph = capture.end().expect("it is whole");
    drop((memory, graph, kept));
    assert_usable(&test, &pool, &stream);
}

#[test]
fn p8_pools_are_emptied_and_released_during_a_capture() {
    for test in TestAllocator::both("") {
        let [stream, other] = test.streams();
        let [pool, emptied, released] = [(); 3].map(|()| test.allocator.create_pool());
        for pool in [&emptied, &released] {
            let memory = pool.allocate(12 * MIB, &other).expect("there is room");
            test.fill(&memory, 1, &other);
        }
        let capture = begin_capture(&pool, &stream);
        assert_eq!(emptied.empty_cache().expect("nothing fails"), 12 * MIB);
        drop(released);
        assert_eq!(test.device.physical_bytes(), 0);
        assert!(test.is_captured(&stream));
        capture.end().expect("it is whole");
        assert_usable(&test, &pool, &stream);
    }
}

#[test]
fn p12_graphs_may_go_while_the_stream_they_ran_in_is_captured() {
    for test in TestAllocator::both("") {
        let stream = test.stream();
        let [old, pool] = [(); 2].map(|()| test.allocator.create_capture_pool());
        let (graph, memory) = test.filling(&old, &stream, 1);
        drop(memory);
        launch(&graph, &stream);
        let capture = begin_capture(&pool, &stream);
        drop((graph, old));
        assert!(test.is_captured(&stream));
        capture.end().expect("it is whole");
        stream.synchronize().expect("it touched nothing that was gone");
        test.allocator.empty_cache().expect("nothing fails");
        assert_eq!(test.device.physical_bytes(), 0, "it went once that could be");
        assert_usable(&test, &pool, &stream);
    }
}

#[test]
fn p6_memory_of_a_graph_that_went_during_a_capture_serves_after_it() {
    for text in ["", ELASTIC] {
        let (test, [stream, other]) = TestAllocator::of(32 * MIB, text).with_streams();
        let (old, capture) = test.capture(&stream);
        drop(test.allocate(20 * MIB, &stream));
        let graph = capture.end().expect("it is whole");
        launch(&graph, &stream);
        let (_pool, capture) = test.capture(&stream);
        drop((graph, old));
        capture.end().expect("it is whole");
        let served = test.allocator.allocate(20 * MIB, &other);
        assert!(served.is_ok(), "{text}: {served:?}");
    }
}

#[test]
fn p6_a_pool_may_go_while_its_stream_is_captured_by_another() {
    for test in TestAllocator::both("") {
        let stream = test.stream();
        let [old, pool] = [test.allocator.create_pool(), test.allocator.create_pool()];
        drop(old.allocate(12 * MIB, &stream).expect("there is room"));
        let capture = begin_capture(&pool, &stream);
        drop(old);
        assert!(test.is_captured(&stream));
        capture.end().expect("it is whole");
        test.allocator.empty_cache().expect("nothing fails");
        assert_eq!(test.device.physical_bytes(), 0);
        assert_usable(&test, &pool, &stream);
    }
}
