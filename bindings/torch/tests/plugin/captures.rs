//! Routes by a filter of the caller's, as captures of PyTorch begin them.

use cachette::hal::CaptureMode;
use cachette::hal::Device;
use cachette_torch::{MempoolId, counters};

use super::Case;
use super::bed::{self, MIB, allocate, free, handle};
use super::cpp::{Caller, Outcome};
use super::pools::release;

pub(crate) const CASES: &[Case] = &[
    ("p4_a_large_filter_leads_its_stream_alone", || by_filter(false)),
    ("p4_a_small_filter_leads_its_stream_alone", || by_filter(true)),
    ("p12_a_route_that_begins_before_its_capture_serves_it", capture),
    ("p3_mistakes_with_pools_are_thrown", mistakes),
];

const POOL: MempoolId = MempoolId { first: 7, second: 0 };

fn by_filter(small: bool) {
    let Some(caller) = Caller::new(true) else { return };
    bed::start("");
    let (led, other) = (bed::stream(0), bed::stream(0));
    let before = allocate(30 * MIB, 0, led.handle());
    free(before, 0);
    assert_eq!(caller.begin(0, POOL, handle(led.handle()), small), Outcome::Returned);
    let held = i64::from(!small);
    assert_eq!(caller.filters_held(), held, "the one copy is the allocator's");
    let inside = allocate(30 * MIB, 0, led.handle());
    assert_ne!(inside, before, "the pool's memory is its own");
    let outside = allocate(30 * MIB, 0, other.handle());
    free(inside, 0);
    assert_eq!(allocate(30 * MIB, 0, led.handle()), inside);
    assert_ne!(allocate(30 * MIB, 0, other.handle()), outside);
    free(inside, 0);
    assert_eq!(caller.end(0, POOL), Outcome::Returned);
    assert_eq!(caller.filters_held(), 0, "it was destroyed with its route");
    assert_eq!(allocate(30 * MIB, 0, led.handle()), before);
    let reserved = bed::allocator(0).reserved_bytes();
    release(0, POOL);
    assert_eq!(bed::allocator(0).reserved_bytes(), reserved - 30 * MIB);
    assert_eq!(counters(), cachette_torch::Counters::default());
}

fn capture() {
    let Some(caller) = Caller::new(true) else { return };
    let backend = bed::start("");
    let device = bed::device(&backend, 0);
    let stream = bed::stream(0);
    assert_eq!(caller.begin(0, POOL, handle(stream.handle()), false), Outcome::Returned);
    let capture = device.capture().unwrap();
    // SAFETY: 1. the stream lives as long as the case.
    unsafe { capture.begin_capture(stream.handle(), CaptureMode::Global) }.unwrap();
    let memory = allocate(30 * MIB, 0, stream.handle());
    assert!(!memory.is_null());
    free(memory, 0);
    assert_eq!(allocate(30 * MIB, 0, stream.handle()), memory);
    free(memory, 0);
    // SAFETY: 1. the stream lives as long as the case.
    let graph = unsafe { capture.end_capture(stream.handle()) }.unwrap();
    assert_eq!(caller.end(0, POOL), Outcome::Returned);
    bed::allocator(0).empty_cache().unwrap();
    assert_eq!(bed::allocator(0).reserved_bytes(), 30 * MIB, "the graph has it");

    // A launch that runs while the last user goes is waited for: its memory is the graph's until then.
    // SAFETY: 1. both live; 3. the graph touches nothing.
    unsafe { capture.launch(&graph, stream.handle()) }.unwrap();
    release(0, POOL);
    assert_eq!(bed::allocator(0).reserved_bytes(), 0);
    // SAFETY: 1. it was made above.
    unsafe { capture.destroy_graph(graph) }.unwrap();
}

fn mistakes() {
    let Some(caller) = Caller::new(true) else { return };
    bed::start("");
    let stream = handle(bed::stream(0).handle());
    let Outcome::Error(text) = caller.end(0, POOL) else {
        panic!("it was never begun");
    };
    assert_eq!(text, "pool {7, 0}: no route to this pool exists; call begin_allocate_to_pool first");
    assert_eq!(caller.begin(0, POOL, stream, false), Outcome::Returned);
    let Outcome::Error(text) = caller.begin(0, POOL, stream, false) else {
        panic!("it was begun twice");
    };
    assert_eq!(text, "pool {7, 0}: a route to this pool already exists; call end_allocate_to_pool first");
    assert_eq!(caller.filters_held(), 1, "the refused one was destroyed");
    assert_eq!(caller.live_errors(), 0);
}
