//! Reuse inside a capture: memory that other streams used serves again once the graph's own order allows it.

use cachette::hal::{Call, CaptureMode, ErrorKind};
use cachette_hal_host::HostConfig;

use crate::captures_uses::{UsedBefore, free_in_a_capture_after_a_use};
use crate::fixture::{MIB, Pool, Stream, TestAllocator, assert_consistent, begin_capture, launch};

const REUSE: &str = "graph_capture_record_stream_reuse:True";

/// Allocators that reuse, with segments of the device's own and with elastic ones, on devices whose graphs run in
/// an order drawn from `seed`.
fn tests(seed: u64) -> [TestAllocator; 2] {
    let host = HostConfig::default().stepped(seed);
    let elastic = TestAllocator::elastic_on(host.clone(), &format!(",{REUSE}"));
    [TestAllocator::on(host, REUSE), elastic]
}

fn test() -> TestAllocator {
    TestAllocator::on(HostConfig::default().stepped(3), REUSE)
}

/// Allocates memory of `stream` in the capture, lets `sides` use it, and frees it. Returns its address.
fn use_and_free(test: &TestAllocator, stream: &Stream, sides: &[&Stream]) -> u64 {
    let memory = test.allocate(MIB, stream);
    for (byte, side) in (1..).zip(sides) {
        test.follow(side, stream);
        memory.record_stream(side);
        test.fill(&memory, byte, side);
    }
    memory.address()
}

#[test]
fn e6_streams_reuse_after_the_last_has_joined_and_not_before() {
    for (test, count) in tests(1).into_iter().chain(tests(2)).zip([1, 1, 3, 3]) {
        let stream = test.stream();
        let sides: Vec<_> = (0..count).map(|_| test.stream()).collect();
        let (_pool, capture) = test.capture(&stream);
        let address = use_and_free(&test, &stream, &sides.iter().collect::<Vec<_>>());
        let mut others = Vec::new();
        for side in &sides {
            others.push(test.allocate(MIB, &stream));
            test.follow(&stream, side);
        }
        assert!(others.iter().all(|memory| memory.address() != address), "the streams have not joined");
        let after = test.allocate(MIB, &stream);
        assert_eq!(after.address(), address, "they have now");
        assert!(test.is_captured(&stream));
        let graph = capture.end().expect("it is whole");
        assert_eq!(test.stats().active.all.current, count + 1, "E9");
        drop((others, after, graph));
        test.allocator.check().expect("every invariant holds");
    }
}

#[test]
fn e6_a_hit_in_a_capture_that_was_not_announced_reuses_too() {
    let (test, [stream, side]) = test().with_streams();
    test.begin_unannounced(&stream, CaptureMode::Relaxed);
    let address = use_and_free(&test, &stream, &[&side]);
    test.follow(&stream, &side);
    let calls = test.calls_of(Call::Allocate, || assert_eq!(test.allocate(MIB, &stream).address(), address));
    assert_eq!(calls, 0, "the other half of the segment would do too");
    test.end_unannounced(&stream);
}

#[test]
fn e6_streams_that_join_by_way_of_each_other_count_as_joined() {
    let (test, [stream, near, far]) = test().with_streams();
    let (_pool, capture) = test.capture(&stream);
    let address = use_and_free(&test, &stream, &[&near, &far]);
    test.follow(&near, &far);
    assert_ne!(test.allocate(MIB, &stream).address(), address);
    test.follow(&stream, &near);
    assert_eq!(test.allocate(MIB, &stream).address(), address);
    capture.end().expect("it is whole");
}

#[test]
fn e6_what_a_stream_does_after_the_free_is_not_waited_for() {
    let (test, [stream, side]) = test().with_streams();
    let out = test.allocate(MIB, &side);
    let (_pool, capture) = test.capture(&stream);
    let address = use_and_free(&test, &stream, &[&side]);
    test.follow(&stream, &side);
    test.fill(&out, 9, &side);
    assert_eq!(test.allocate(MIB, &stream).address(), address);
    test.follow(&stream, &side);
    capture.end().expect("it is whole");
}

/// In every order that the graph allows, each of three users of one address reads what it wrote.
#[test]
fn e6_contents_are_right_when_the_graph_runs() {
    for seed in 0..24 {
        for test in tests(seed) {
            let [stream, side] = test.streams();
            let outs = [(); 3].map(|()| test.allocate(MIB, &stream));
            let (_pool, capture) = test.capture(&stream);
            let mut addresses = Vec::new();
            for (byte, out) in (1..).zip(&outs) {
                test.follow(&side, &stream);
                let memory = test.allocate(MIB, &stream);
                addresses.push(memory.address());
                memory.record_stream(&side);
                test.fill(&memory, byte, &side);
                test.copy(out, &memory, &side);
                drop(memory);
                test.follow(&stream, &side);
            }
            assert!(addresses.iter().all(|address| *address == addresses[0]));
            let graph = capture.end().expect("it is whole");
            for _ in 0..2 {
                launch(&graph, &stream);
                let seen = outs.each_ref().map(|out| test.content(out, &stream));
                assert_eq!(seen, [Some(1), Some(2), Some(3)], "seed {seed}");
            }
        }
    }
}

/// Only a request on the captured stream may query the capture: its thread is the capturing one.
#[test]
fn e6_calls_on_every_heap_and_hits_while_no_memory_waits_ask_nothing_of_a_capture() {
    let (test, [stream, side, other]) = test().with_streams();
    let (_pool, capture) = test.capture(&stream);
    let address = use_and_free(&test, &stream, &[&side]);
    test.follow(&stream, &side);
    let asked = test.calls_of(Call::Frontier, || {
        drop(test.allocate(MIB, &other));
        test.allocator.empty_cache().expect("nothing fails");
    });
    assert_eq!(asked, 0);
    drop(test.allocate(MIB, &stream));
    for call in [Call::Frontier, Call::Dependencies] {
        let asked = test.calls_of(call, || assert_eq!(test.allocate(MIB, &stream).address(), address));
        assert_eq!(asked, 0, "{call}");
    }
    capture.end().expect("it is whole");
}

#[test]
fn e6_e7_a_use_from_before_the_capture_is_not_the_graphs_affair() {
    for test in tests(3) {
        free_in_a_capture_after_a_use(&test, true);
    }
}

#[test]
fn e7_a_capture_reuses_what_came_free_before_it_began() {
    for test in tests(3) {
        let UsedBefore { streams: [stream, _side], pool, memory, hold } = UsedBefore::new(&test);
        let address = memory.address();
        let first = begin_capture(&pool, &stream);
        drop(memory);
        let mut graphs = vec![first.end().expect("it is whole")];
        let mut captured = || {
            let capture = begin_capture(&pool, &stream);
            let memory = test.allocate(MIB, &stream);
            graphs.push(capture.end().expect("it is whole"));
            memory
        };
        let other = captured();
        assert_ne!(other.address(), address, "the side stream is still held");
        drop(hold);
        test.device.run_until_idle();
        let again = captured();
        assert_eq!(again.address(), address);
        drop((other, again, graphs));
        assert_consistent(&test.allocator);
    }
}

#[test]
fn e6_e8_a_use_in_another_capture_is_waited_for() {
    let (test, [stream, side, stranger]) = test().with_streams();
    let [pool, other] = [(); 2].map(|()| test.allocator.create_capture_pool());
    let begin = |pool: &Pool, stream| {
        let begun = pool.begin_capture(stream, CaptureMode::Relaxed);
        begun.expect("the capture begins")
    };
    let (capture, foreign) = (begin(&pool, &stream), begin(&other, &stranger));
    test.follow(&side, &stream);
    let memory = test.allocate(MIB, &stream);
    let address = memory.address();
    memory.record_stream(&side);
    memory.record_stream(&stranger);
    drop(memory);
    test.follow(&stream, &side);
    assert_ne!(test.allocate(MIB, &stream).address(), address);
    let first = capture.end().expect("it is whole");
    let second = foreign.end().expect("it is whole");
    let both = [(); 2].map(|()| pool.allocate(MIB, &stream).expect("there is room"));
    assert!(both.iter().any(|memory| memory.address() == address));
    drop((both, first, second));
    test.assert_sound();
}

#[test]
fn e7_at_the_end_of_the_capture_its_memory_comes_free() {
    for (config, left) in [(REUSE, 0), ("", 1)] {
        let (test, [stream, side]) = TestAllocator::on(HostConfig::default().stepped(3), config).with_streams();
        let (_pool, capture) = test.capture(&stream);
        let address = use_and_free(&test, &stream, &[&side]);
        test.follow(&stream, &side);
        if config.is_empty() {
            assert_ne!(test.allocate(MIB, &stream).address(), address, "E6: nothing is reused without the option");
            assert_eq!(test.device.calls(Call::Frontier) + test.device.calls(Call::Dependencies), 0);
        }
        let graph = capture.end().expect("it is whole");
        assert_eq!(test.stats().active.all.current, left, "'{config}'");
        drop(graph);
        test.assert_sound();
    }
}

#[test]
fn e6_e7_two_captures_share_a_pool_and_its_memory() {
    for test in tests(4) {
        let [stream, side] = test.streams();
        let pool = test.allocator.create_capture_pool();
        let graphs = [1_u8, 2].map(|byte| {
            let out = test.allocate(MIB, &side);
            let capture = begin_capture(&pool, &stream);
            test.follow(&side, &stream);
            let memory = test.allocate(MIB, &stream);
            let address = memory.address();
            memory.record_stream(&side);
            test.fill(&memory, byte, &side);
            test.copy(&out, &memory, &side);
            drop(memory);
            test.follow(&stream, &side);
            (capture.end().expect("it is whole"), address, out, byte)
        });
        assert_eq!(graphs[0].1, graphs[1].1, "nothing was asked for in between");
        for (graph, _, out, byte) in &graphs {
            launch(graph, &stream);
            assert_eq!(test.content(out, &stream), Some(*byte));
        }
    }
}

/// The allocator recognises captures that other code begins and ends by their ids.
#[test]
fn e6_e7_in_the_next_capture_the_uses_of_the_last_are_over() {
    let (test, [stream, side]) = test().with_streams();
    test.begin_unannounced(&stream, CaptureMode::Relaxed);
    let address = use_and_free(&test, &stream, &[&side]);
    assert_ne!(test.allocate(MIB, &stream).address(), address);
    test.follow(&stream, &side);
    test.end_unannounced(&stream);
    test.begin_unannounced(&stream, CaptureMode::Relaxed);
    let both = [test.allocate(MIB, &stream), test.allocate(MIB, &stream)];
    assert!(both.iter().any(|memory| memory.address() == address));
    test.end_unannounced(&stream);
}

#[test]
fn e6_a_driver_that_cannot_say_loses_nothing() {
    for (call, nth) in [
        (Call::Frontier, 1),
        (Call::Frontier, 2),
        (Call::Frontier, 3),
        (Call::Dependencies, 1),
        (Call::Dependencies, 2),
    ] {
        for test in tests(5) {
            let [stream, side] = test.streams();
            let (pool, capture) = test.capture(&stream);
            let memory = test.allocate(MIB, &stream);
            test.fill(&memory, 7, &stream);
            let before = test.device.calls(call);
            test.device.fail_next(call, nth, ErrorKind::Unsupported);
            let address = use_and_free(&test, &stream, &[&side]);
            test.follow(&stream, &side);
            let inside = test.allocate(MIB, &stream);
            assert!(test.device.calls(call) - before >= nth, "{call} {nth}");
            // The streams' places are asked for once, at the free; how they hang together is, again and again.
            let marked = nth == 3 || call == Call::Dependencies;
            assert_eq!(inside.address() == address, marked, "{call} {nth}");
            assert!(test.is_captured(&stream));
            let graph = capture.end().expect("it is whole");
            drop((memory, inside));
            assert_eq!(test.stats().active.all.current, 0, "{call} {nth}");
            test.assert_returns_everything_after((graph, pool, stream, side));
        }
    }
}

#[test]
fn e6_memory_released_behind_a_capture_is_reused_after_the_join() {
    let (test, [stream, side]) = test().with_streams();
    let (_pool, capture) = test.capture(&stream);
    test.follow(&side, &stream);
    let memory = test.allocate(MIB, &stream);
    let address = memory.address();
    memory.record_stream(&side);
    drop(memory);
    let memory = test.allocate(MIB, &stream);
    assert_eq!(memory.address(), address, "a recorded use without work is no obstacle");
    test.fill(&memory, 1, &side);
    memory.release_after(&[&side]).expect("nothing is marked");
    assert_ne!(test.allocate(MIB, &stream).address(), address);
    test.follow(&stream, &side);
    assert_eq!(test.allocate(MIB, &stream).address(), address);
    capture.end().expect("it is whole");
}
