//! Captures that another thread begins in the middle of a call: no memory waits for an event of a graph.

use std::sync::{Arc, Mutex, mpsc};

use cachette::Allocator;
use cachette::hal::{Call, CaptureMode, Device, DevicePtr};
use cachette::sleep::Contents;
use cachette_hal_host::HostConfig;

use crate::fixture::{Allocation, ELASTIC, Graph, MIB, Pool, Stream, TestAllocator, assert_consistent, launch};

/// Two steps with memory of the first stream: one before the capture, and one during which it begins.
struct Scene {
    before: fn(Allocation, &Stream) -> Option<Allocation>,
    amid: fn(&Allocator, Option<Allocation>),
    /// The stream that is captured.
    captured: usize,
    /// The stream after whose query it is.
    queried: usize,
}

/// Begins a capture after the allocator has seen that a stream is not captured, and before it records an event there.
/// Then everything is freed.
fn capture_amid(settings: &str, scene: &Scene) {
    let (test, hook) = TestAllocator::hooked(HostConfig::default(), settings);
    let (allocator, streams) = (&test.allocator, test.streams::<2>());
    let memory = (scene.before)(test.allocate(4 * MIB, &streams[0]), &streams[1]);
    let (also, stream) = (allocator.clone(), streams[scene.captured].clone());
    let captures = Arc::new(Mutex::new(None));
    let begun = Arc::clone(&captures);
    hook.set(Call::CaptureStatus, Some(streams[scene.queried].handle()), move || {
        let pool = also.create_capture_pool();
        let capture = pool.begin_capture(&stream, CaptureMode::Relaxed);
        *begun.lock().expect("no thread panics") = Some(capture.expect("no other capture is under way"));
    });

    (scene.amid)(allocator, memory);

    let capture = captures.lock().expect("no thread panics").take();
    let graph = capture.expect("the allocator has asked").end().expect("it is whole");
    drop(graph);
    for _ in 0..3 {
        allocator.empty_cache().expect("nothing fails");
    }
    assert_eq!(allocator.reserved_bytes(), 0, "{settings}");
    assert_consistent(allocator);
}

const TEXTS: [&str; 2] = ["", ELASTIC];

#[test]
fn a_capture_begun_amid_a_free_keeps_no_memory() {
    let used_by_another = |memory: Allocation, other: &Stream| {
        memory.record_stream(other);
        Some(memory)
    };
    // With reuse inside captures, all streams are queried.
    for (text, queried) in
        TEXTS.map(|text| (text, 0)).into_iter().chain([("graph_capture_record_stream_reuse:True", 1)])
    {
        capture_amid(text, &Scene { before: used_by_another, amid: |_, memory| drop(memory), captured: 1, queried });
    }
}

#[test]
fn a_capture_begun_amid_an_emptying_keeps_no_memory() {
    let empty = |allocator: &Allocator, _| {
        allocator.empty_cache().expect("memory of a captured stream stays");
    };
    for text in TEXTS {
        capture_amid(text, &Scene { before: |_, _| None, amid: empty, captured: 0, queried: 0 });
    }
}

/// Captures a graph that fills memory of `pool`. The memory is free again when the capture ends.
fn capture_fill(pool: &Pool, stream: &Stream) -> Graph {
    let capture = pool.begin_capture(stream, CaptureMode::Relaxed).expect("no other capture is under way");
    let allocator = pool.allocator();
    let memory = allocator.allocate(4 * MIB, stream).expect("there is room");
    let address = DevicePtr::new(memory.address()).expect("memory has an address");
    let transfer = allocator.device().transfer().expect("the host device copies");
    // SAFETY: 1. the stream is live. 3. the memory belongs to the graph.
    unsafe { transfer.fill(address, 7, 4 * MIB, stream.handle()) }.expect("it is captured");
    drop(memory);
    capture.end().expect("it is whole")
}

/// Captures a graph in the pool that `pool` returns, in the middle of `amid`. Then the graph runs.
fn capture_whole_amid(settings: &str, pool: fn(&Allocator, &Stream) -> Pool, amid: fn(&Pool)) {
    let (test, hook) = TestAllocator::hooked(HostConfig::default(), settings);
    let stream = test.stream();
    drop(test.allocate(4 * MIB, &stream));
    let pool = Arc::new(pool(&test.allocator, &stream));
    let (graph, in_hook) = (Arc::new(Mutex::new(None)), Arc::clone(&pool));
    let (captured, also) = (Arc::clone(&graph), stream.clone());
    hook.set(Call::CaptureStatus, Some(stream.handle()), move || {
        *captured.lock().expect("no thread panics") = Some(capture_fill(&in_hook, &also));
    });

    amid(&pool);

    let graph = graph.lock().expect("no thread panics").take().expect("the allocator has asked");
    launch(&graph, &stream);
    stream.synchronize().expect("the graph's memory is mapped");
    assert_consistent(&test.allocator);
}

#[test]
fn a_graph_captured_amid_an_emptying_keeps_its_memory() {
    // The pool takes the heap of one that is gone, which the emptying has listed.
    let after_another = |allocator: &Allocator, stream: &Stream| {
        drop(capture_fill(&allocator.create_capture_pool(), stream));
        allocator.create_capture_pool()
    };
    for text in TEXTS {
        capture_whole_amid(text, after_another, |pool| drop(pool.allocator().empty_cache()));
    }
}

#[test]
fn a_graph_captured_amid_its_pools_emptying_keeps_its_memory() {
    let with_idle_memory = |allocator: &Allocator, stream: &Stream| {
        let pool = allocator.create_capture_pool();
        drop(pool.allocate(4 * MIB, stream).expect("there is room"));
        pool
    };
    for text in TEXTS {
        capture_whole_amid(text, with_idle_memory, |pool| drop(pool.empty_cache()));
    }
}

#[test]
fn a_capture_begun_amid_a_sleep_of_another_streams_pool_does_not_fail_it() {
    let (test, hook) = TestAllocator::hooked(HostConfig::default(), ELASTIC);
    let [own, other] = test.streams();
    let (pool, graphs) = (test.allocator.create_pool(), test.allocator.create_capture_pool());
    let _memory = pool.allocate(4 * MIB, &own).unwrap();
    let _elsewhere = test.allocate(MIB, &other);
    let (also, (tell, told)) = (other.clone(), mpsc::channel());
    hook.set(Call::CaptureStatus, Some(other.handle()), move || {
        tell.send(graphs.begin_capture(&also, CaptureMode::Relaxed)).unwrap();
    });
    let slept = pool.sleep(Contents::Keep);
    let capture = told.try_recv().expect("the allocator has asked").unwrap();
    assert!(slept.is_ok(), "{slept:?}");
    capture.end().expect("it is whole");
}
