//! Pinned memory in captures: memory that a graph copies from or to is not reused while the graph lives.

use cachette::hal::{Call, CaptureMode, ErrorKind};
use cachette_hal_host::HostConfig;

use crate::fixture::{Allocation, Graph, Pool, Stream, TestAllocator, begin_capture, launch};
use crate::pinned::{Staged, WHOLE};

/// A graph that copies pinned memory to the device; the pinned memory is freed in the capture.
fn copying(test: &TestAllocator, pool: &Pool, stream: &Stream, byte: u8) -> (Graph, Allocation, usize) {
    let capture = begin_capture(pool, stream);
    let mut memory = test.pin(WHOLE);
    // SAFETY: 1. no copy is queued yet.
    unsafe { memory.as_mut_slice() }.fill(byte);
    let at = memory.ptr().addr().get();
    let target = test.allocate(WHOLE, stream);
    test.upload(&target, &memory, stream);
    memory.record_stream(stream);
    drop(memory);
    (capture.end().expect("it is whole"), target, at)
}

/// Allocates `count` blocks and writes them full.
fn scribble(test: &TestAllocator, count: usize) -> Vec<Staged> {
    let mut blocks: Vec<_> = (0..count).map(|_| test.pin(WHOLE)).collect();
    for block in &mut blocks {
        // SAFETY: 1. the caller of `pin` may write the memory.
        unsafe { block.as_mut_slice() }.fill(0xff);
    }
    blocks
}

#[test]
fn n6_memory_that_a_graph_copies_is_not_reused_while_it_lives() {
    for test in TestAllocator::both("") {
        let stream = test.stream();
        let pool = test.allocator.create_capture_pool();
        let (graph, target, at) = copying(&test, &pool, &stream, 3);
        for _ in 0..3 {
            let others = scribble(&test, 4);
            assert!(others.iter().all(|other| other.ptr().addr().get() != at));
            launch(&graph, &stream);
            test.device.run_until_idle();
            assert_eq!(test.content(&target, &stream), Some(3));
            test.fill(&target, 0, &stream);
        }
        drop((graph, target, pool));
        test.device.run_until_idle();
        stream.synchronize().expect("it runs dry");
        let all = scribble(&test, 5);
        assert!(all.iter().any(|other| other.ptr().addr().get() == at));
        test.assert_returns_everything_after((all, stream));
    }
}

#[test]
fn n6_memory_that_no_copy_uses_serves_in_the_capture_and_after() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let (_pool, capture) = test.capture(&stream);
    let at = test.pin(WHOLE).ptr();
    assert_eq!(test.pin(WHOLE).ptr(), at);
    let graph = capture.end().expect("it is whole");
    assert_eq!(test.pin(WHOLE).ptr(), at);
    drop(graph);
}

#[test]
fn n6_memory_from_before_the_capture_is_kept_too() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_capture_pool();
    let memory = test.pin(WHOLE);
    let at = memory.ptr();
    let capture = begin_capture(&pool, &stream);
    memory.record_stream(&stream);
    let graph = capture.end().expect("it is whole");
    drop(memory);
    assert_ne!(test.pin(WHOLE).ptr(), at);
    drop((graph, pool));
    let both = [(); 2].map(|()| test.pin(WHOLE));
    assert!(both.iter().any(|memory| memory.ptr() == at));
}

#[test]
fn n6_a_graph_of_another_device_keeps_memory_while_it_lives() {
    let [here, there] = TestAllocator::two_devices();
    let (stream, pinned) = (there.stream(), here.allocator.pinned());
    let pool = there.allocator.create_capture_pool();
    let raw = pinned.allocate_raw(WHOLE).expect("there is room");
    let capture = begin_capture(&pool, &stream);
    // SAFETY: the stream lives until the end of the test.
    unsafe { pinned.record_stream_raw(raw, &there.allocator, stream.handle()) }.expect("it is allocated");
    let graph = capture.end().expect("it is whole");
    assert_eq!(pinned.free_raw(raw), Ok(()));
    assert_ne!(here.pin(WHOLE).ptr().as_ptr(), raw);
    drop((graph, pool));
    let both = [(); 2].map(|()| here.pin(WHOLE));
    assert!(both.iter().any(|memory| memory.ptr().as_ptr() == raw));
}

#[test]
fn n6_two_graphs_keep_their_memory_apart_in_one_pool_or_two() {
    for shared in [true, false] {
        let (test, [stream]) = TestAllocator::new().with_streams();
        let first_pool = test.allocator.create_capture_pool();
        let second_pool = test.allocator.create_capture_pool();
        let (first, one, at) = copying(&test, &first_pool, &stream, 1);
        let pool = if shared { &first_pool } else { &second_pool };
        let (second, two, other) = copying(&test, pool, &stream, 2);
        assert_ne!(at, other);
        for _ in 0..2 {
            launch(&first, &stream);
            assert_eq!(test.content(&one, &stream), Some(1), "shared: {shared}");
            launch(&second, &stream);
            assert_eq!(test.content(&two, &stream), Some(2), "shared: {shared}");
        }
        drop((first, first_pool, one));
        let freed = scribble(&test, 3).iter().any(|memory| memory.ptr().addr().get() == at);
        assert_eq!(freed, !shared, "a pool keeps until its last graph is gone");
        launch(&second, &stream);
        assert_eq!(test.content(&two, &stream), Some(2));
        test.assert_returns_everything_after((second, second_pool, two, stream));
    }
}

#[test]
fn n6_memory_waits_for_streams_and_graphs_alike() {
    let (test, [stream, side]) = TestAllocator::on(HostConfig::default().stepped(4), "").with_streams();
    let pool = test.allocator.create_capture_pool();
    let memory = test.pin(WHOLE);
    let at = memory.ptr();
    let held = test.hold(&side);
    memory.record_stream(&side);
    let capture = begin_capture(&pool, &stream);
    memory.record_stream(&stream);
    drop(memory);
    let graph = capture.end().expect("it is whole");
    let is_free = || {
        // More than were ever free, so that the cache looks.
        let all = [(); 3].map(|()| test.pin(WHOLE));
        all.iter().any(|memory| memory.ptr() == at)
    };
    assert!(!is_free(), "a stream and a graph use it");
    drop((graph, pool));
    assert!(!is_free(), "a stream uses it");
    drop(held);
    test.device.run_until_idle();
    let all = [(); 4].map(|()| test.pin(WHOLE));
    assert!(all.iter().any(|memory| memory.ptr() == at));
}

#[test]
fn n6_a_stream_captured_during_the_free_is_waited_for_later() {
    let (test, [stream]) = TestAllocator::on(HostConfig::default().stepped(4), "").with_streams();
    let pool = test.allocator.create_capture_pool();
    let memory = test.pin(WHOLE);
    let at = memory.ptr();
    memory.record_stream(&stream);
    let capture = begin_capture(&pool, &stream);
    drop(memory);
    assert_ne!(test.pin(WHOLE).ptr(), at, "nothing can be marked in a capture");
    assert!(test.is_captured(&stream));
    capture.end().expect("it is whole");
    let other = test.pin(WHOLE);
    assert_ne!(other.ptr(), at);
    let probe = test.pin(WHOLE);
    assert_ne!(probe.ptr(), at, "the point is marked and not passed");
    test.device.run_until_idle();
    assert_eq!(test.pin(WHOLE).ptr(), at);
}

#[test]
fn n6_an_unknown_graph_keeps_its_memory_until_the_end() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    test.begin_unannounced(&stream, CaptureMode::Global);
    let memory = test.pin(WHOLE);
    let at = memory.ptr();
    memory.record_stream(&stream);
    drop(memory);
    assert_ne!(test.pin(WHOLE).ptr(), at);
    test.end_unannounced(&stream);
    assert_ne!(test.pin(WHOLE).ptr(), at, "the allocator does not know of the destruction");
    test.assert_returns_everything_after(stream);
}

#[test]
fn n6_memory_whose_capture_could_not_be_queried_counts_as_captured() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_capture_pool();
    let capture = begin_capture(&pool, &stream);
    let memory = test.pin(WHOLE);
    let at = memory.ptr().addr().get();
    test.device.fail_next(Call::CaptureStatus, 1, ErrorKind::Other);
    memory.record_stream(&stream);
    test.device.clear_failures();
    drop(memory);
    let graph = capture.end().unwrap();
    let others = scribble(&test, 4);
    assert!(others.iter().all(|other| other.ptr().addr().get() != at), "the graph may copy from it");
    drop(graph);
}
