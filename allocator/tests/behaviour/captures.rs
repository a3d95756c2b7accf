//! Captures: their memory comes from a pool, and stays while graphs may use it.

use std::thread;

use cachette::hal::CaptureMode;
use cachette::pool::{Filter, PoolProblem};
use cachette::{Error, PoolId};

use crate::fixture::{Allocation, Graph, KIB, MIB, Stream, TestAllocator, begin_capture, launch};

const MODES: [CaptureMode; 3] = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

/// Runs a graph, and waits for its end.
fn run(graph: &Graph, stream: &Stream) {
    launch(graph, stream);
    stream.synchronize().expect("the graph runs");
}

#[test]
fn m5_a_capture_gets_memory_from_its_pool_alone() {
    for mode in MODES {
        for test in TestAllocator::both("") {
            let stream = test.stream();
            drop(test.allocate(12 * MIB, &stream));
            let pool = test.allocator.create_capture_pool();
            let capture = pool.begin_capture(&stream, mode).expect("it begins");
            let memory = test.allocate(12 * MIB, &stream);
            let raw = test.allocate_raw(4 * KIB, &stream);
            assert!(pool.check_live_allocations(&[memory.address(), raw]));
            test.allocator.free_raw(raw).expect("it is allocated");
            assert_eq!(test.device.physical_bytes(), 26 * MIB);
            assert!(test.is_captured(&stream), "{mode:?}: segments were obtained");
            assert_ne!(capture.pool().id(), PoolId::DEFAULT);
            let graph = capture.end().expect("it is whole");
            let after = test.allocate(12 * MIB, &stream);
            assert!(pool.check_live_allocations(&[memory.address()]), "it serves no more");
            assert_eq!(test.device.physical_bytes(), 26 * MIB);
            drop((memory, after, graph));
            test.assert_sound();
        }
    }
}

#[test]
fn m5_elastic_pools_serve_captures_too() {
    for mode in MODES {
        let (test, [stream]) = TestAllocator::elastic("").with_streams();
        let pool = test.allocator.create_capture_pool();
        let capture = pool.begin_capture(&stream, mode).expect("it begins");
        let memory = test.allocate(6 * MIB, &stream);
        test.fill(&memory, 4, &stream);
        assert!(test.is_captured(&stream), "{mode:?}");
        let graph = capture.end().expect("it is whole");
        run(&graph, &stream);
        assert_eq!(test.content(&memory, &stream), Some(4));
        test.assert_elastic_sound();
        drop((memory, graph, pool));
        test.device.run_until_idle();
        test.allocator.empty_cache().expect("nothing fails");
        assert_eq!(test.device.physical_bytes(), 0);
    }
}

#[test]
fn p12_a_capture_has_every_segment_size_it_needs() {
    let sizes =
        [(512, 2 * MIB), (MIB, 2 * MIB), (MIB + 512, 20 * MIB), (10 * MIB - 512, 20 * MIB), (10 * MIB + 512, 12 * MIB)];
    for (bytes, segment) in sizes {
        let (test, [stream]) = TestAllocator::new().with_streams();
        let (pool, capture) = test.capture(&stream);
        let memory = test.allocate(bytes, &stream);
        let graph = capture.end().expect("it is whole");
        let stats = pool.stats();
        assert_eq!((stats.segments, stats.reserved_bytes), (1, segment));
        drop((graph, pool));
        assert_eq!(test.device.physical_bytes(), segment, "what lives keeps it");
        drop(memory);
        test.allocator.empty_cache().expect("nothing fails");
        assert_eq!(test.device.physical_bytes(), 0);
    }
}

#[test]
fn p12_a_stream_that_joins_is_served_by_the_same_pool() {
    for test in TestAllocator::both("") {
        let [stream, side, apart] = test.streams();
        let (pool, capture) = test.capture(&stream);
        let before = test.allocate(MIB, &side);
        assert!(pool.check_live_allocations(&[]), "it has not joined yet");
        test.follow(&side, &stream);
        let memory = [test.allocate(MIB, &stream), test.allocate(MIB, &side)];
        let other = test.allocate(MIB, &apart);
        assert!(pool.check_live_allocations(&memory.each_ref().map(Allocation::address)));
        assert_eq!(pool.stats().segments, 2, "one a stream");
        test.fill(&memory[0], 1, &stream);
        test.fill(&memory[1], 2, &side);
        test.follow(&stream, &side);
        let graph = capture.end().expect("it is whole");
        run(&graph, &stream);
        assert_eq!(test.content(&memory[0], &stream), Some(1));
        assert_eq!(test.content(&memory[1], &side), Some(2));
        drop((before, memory, other, graph));
        test.assert_sound();
    }
}

#[test]
fn p12_other_threads_and_streams_go_on_meanwhile() {
    let (test, [stream, other]) = TestAllocator::new().with_streams();
    let (pool, capture) = test.capture(&stream);
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            for round in 1..=20 {
                let memory = test.allocate(round * MIB, &other);
                memory.record_stream(&test.allocator.default_stream().expect("there is one"));
                test.fill(&memory, 1, &other);
            }
            test.allocator.empty_cache().expect("nothing fails");
        });
        worker.join().expect("no thread panics");
    });
    assert!(test.is_captured(&stream));
    assert!(pool.check_live_allocations(&[]));
    capture.end().expect("it is whole");
}

#[test]
fn p12_memory_freed_in_a_capture_serves_it_again() {
    for test in TestAllocator::both("") {
        let stream = test.stream();
        let (pool, capture) = test.capture(&stream);
        let addresses = [1, 2, 3].map(|byte| {
            let memory = test.allocate(MIB, &stream);
            test.fill(&memory, byte, &stream);
            memory.address()
        });
        assert!(addresses.iter().all(|address| *address == addresses[0]));
        let last = test.allocate(MIB, &stream);
        test.fill(&last, 9, &stream);
        let graph = capture.end().expect("it is whole");
        run(&graph, &stream);
        run(&graph, &stream);
        assert_eq!(test.content(&last, &stream), Some(9));
        assert_eq!(pool.stats().reserved_bytes, 2 * MIB);
        drop((graph, last));
    }
}

#[test]
fn p12_graphs_share_a_pool_until_the_last_is_gone() {
    for test in TestAllocator::both("") {
        let stream = test.stream();
        let pool = test.allocator.create_capture_pool();
        let (first, memory) = test.filling(&pool, &stream, 1);
        let (second, other) = test.filling(&pool, &stream, 2);
        assert_eq!(pool.use_count(), 3);
        assert_eq!(pool.stats().segments, 1, "the second used what the first left");
        drop(pool);
        drop((memory, other));
        assert_eq!(test.allocator.empty_cache().expect("nothing fails"), 0);
        run(&first, &stream);
        run(&second, &stream);
        assert_eq!(second.pool().empty_cache().expect("nothing fails"), 0);
        drop(first);
        assert_eq!(test.device.physical_bytes(), 2 * MIB);
        run(&second, &stream);
        drop(second);
        assert_eq!(test.device.physical_bytes(), 0);
        test.assert_sound();
    }
}

#[test]
fn p12_want_of_memory_takes_nothing_from_graphs() {
    let (test, [stream]) = TestAllocator::of(32 * MIB, "").with_streams();
    let (pool, capture) = test.capture(&stream);
    drop(test.allocate(20 * MIB, &stream));
    let graph = capture.end().expect("it is whole");
    assert!(test.allocator.allocate(20 * MIB, &stream).is_err());
    assert!(pool.allocate(26 * MIB, &stream).is_err(), "not for the pool itself");
    assert_eq!(pool.stats().reserved_bytes, 20 * MIB);
    run(&graph, &stream);
    drop((graph, pool));
    drop(test.allocate(26 * MIB, &stream));
}

#[test]
fn p12_a_result_outlives_its_graph() {
    for test in TestAllocator::both("") {
        let stream = test.stream();
        let (pool, capture) = test.capture(&stream);
        drop(test.allocate(30 * MIB, &stream));
        let result = test.allocate(MIB, &stream);
        test.fill(&result, 6, &stream);
        let graph = capture.end().expect("it is whole");
        run(&graph, &stream);
        drop((graph, pool));
        assert_eq!(test.device.physical_bytes(), 2 * MIB, "only its segment stays");
        assert_eq!(test.content(&result, &stream), Some(6));
        drop(result);
    }
}

#[test]
fn p12_a_launch_in_progress_keeps_the_memory_of_its_graph() {
    for test in TestAllocator::both("") {
        let [stream, elsewhere] = test.streams();
        let pool = test.allocator.create_capture_pool();
        let (graph, memory) = test.filling(&pool, &stream, 1);
        drop(memory);
        for _ in 0..10 {
            launch(&graph, &elsewhere);
        }
        drop((graph, pool));
        assert_eq!(test.device.physical_bytes(), 0);
        elsewhere.synchronize().expect("it touched nothing that was gone");
        test.assert_sound();
    }
}

#[test]
fn p12_a_thousand_captures_leave_nothing_behind() {
    for text in ["", "expandable_segments:True"] {
        let (test, [stream]) = TestAllocator::with(text).with_streams();
        let shared = test.allocator.create_capture_pool();
        let mut kept = None;
        for round in 0..1000 {
            let alone = test.allocator.create_capture_pool();
            let pool = if round % 2 == 0 { &shared } else { &alone };
            let (graph, memory) = test.filling(pool, &stream, 3);
            launch(&graph, &stream);
            if round % 3 == 0 {
                drop((graph, memory, alone));
            } else {
                drop((alone, memory, graph));
            }
            if round == 10 {
                test.allocator.empty_cache().expect("nothing fails");
                kept = Some((test.device.physical_bytes(), test.device.live()));
            }
        }
        test.allocator.empty_cache().expect("nothing fails");
        let now = (test.device.physical_bytes(), test.device.live());
        assert_eq!(Some(now), kept, "{text:?}");
        assert_eq!(test.stats().allocation.all.current, 0);
        drop(shared);
    }
}

#[test]
fn p12_two_captures_at_once_have_a_pool_each() {
    let (test, [stream, other]) = TestAllocator::new().with_streams();
    let [one, two] = [(); 2].map(|()| test.allocator.create_capture_pool());
    let (first, second) = (begin_capture(&one, &stream), begin_capture(&two, &other));
    let memory = [test.allocate(MIB, &stream), test.allocate(MIB, &other)];
    assert!(one.check_live_allocations(&[memory[0].address()]));
    assert!(two.check_live_allocations(&[memory[1].address()]));
    let third = test.stream();
    let refused = one.begin_capture(&third, CaptureMode::Global);
    assert!(matches!(refused, Err(Error::Pool { why: PoolProblem::Begun, .. })));
    let graphs = [second, first].map(|capture| capture.end().expect("it is whole"));
    drop((memory, graphs));
    test.assert_sound();
}

#[test]
fn p4_a_route_by_capture_can_be_made_by_hand() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let [serving, routed] = [(); 2].map(|()| test.allocator.create_capture_pool());
    let capture = begin_capture(&serving, &stream);
    let driver = cachette::hal::Device::capture(&test.device).expect("the host device captures");
    // SAFETY: 1. the stream lives.
    let status = unsafe { driver.capture_status(stream.handle()) };
    let Ok(cachette::hal::CaptureStatus::Active(id)) = status else {
        panic!("{status:?}");
    };
    test.allocator.begin_allocate_to_pool(routed.id(), Filter::Capture(id)).expect("it begins");
    let memory = test.allocate(MIB, &stream);
    assert!(routed.check_live_allocations(&[memory.address()]), "the route begun last");
    test.allocator.end_allocate_to_pool(routed.id()).expect("it was begun");
    let more = test.allocate(MIB, &stream);
    assert!(serving.check_live_allocations(&[more.address()]));
    capture.end().expect("it is whole");
    drop((memory, more));
}

#[test]
fn p6_a_pool_that_is_opened_again_after_its_last_graph_gives_memory_back() {
    let test = TestAllocator::new();
    let stream = test.stream();
    let pool = test.allocator.create_capture_pool();
    let id = pool.id();
    let live = pool.allocate(30 * MIB, &stream).unwrap();
    let (graph, memory) = test.filling(&pool, &stream, 1);
    launch(&graph, &stream);
    drop((graph, memory, pool));
    let again = test.allocator.open_pool(id).unwrap();
    drop(live);
    assert_eq!(again.empty_cache().unwrap(), 30 * MIB, "its last user and its graphs are gone");
}
