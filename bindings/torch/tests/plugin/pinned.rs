//! Pinned memory for PyTorch's host allocator: one cache for all devices.

use std::ffi::c_void;
use std::ptr;

use cachette::hal::{Call, CaptureMode, Device};
use cachette_torch::adapter::{
    PinnedFigures, cachette_adapter_pin, cachette_adapter_pinned_empty, cachette_adapter_pinned_record,
    cachette_adapter_pinned_reset, cachette_adapter_pinned_stats, cachette_adapter_pins, cachette_adapter_unpin,
};
use cachette_torch::counters;

use super::Case;
use super::bed::{self, DEFAULT, MIB, call, handle};
use super::pools::{POOL, begin, end, release};

pub(crate) const CASES: &[Case] = &[
    ("n1_pinned_memory_is_the_cache_of_a_used_device", one_cache),
    ("n3_pinned_memory_waits_for_streams_of_every_device", waits),
    ("n3_a_part_of_pinned_memory_is_recorded_and_other_memory_is_not", parts),
    ("n6_pinned_memory_of_a_capture_serves_again_after_its_pool_is_released", captured),
    ("n7_pinned_figures_are_zeros_before_the_first_request", zeros),
    ("n8_pinned_memory_that_is_no_ones_is_counted_once", unknown),
    ("n8_pinned_memory_can_stay_pytorchs", native),
];

fn pin(bytes: u64, device: i32) -> *mut c_void {
    cachette_adapter_pin(usize::try_from(bytes).unwrap(), device)
}

fn record(memory: *mut c_void, device: i32, stream: *mut c_void) -> bool {
    call!(cachette_adapter_pinned_record(memory, device, stream))
}

fn figures() -> PinnedFigures {
    let mut figures = PinnedFigures::default();
    call!(cachette_adapter_pinned_stats(&raw mut figures));
    figures
}

fn one_cache() {
    let backend = bed::start_over("", false);
    bed::free(bed::allocate(MIB, 1, DEFAULT), 1);
    let memory = pin(3 * MIB, 0);
    assert_eq!(bed::device(&backend, 0).calls(Call::AllocatePinned), 0, "device 1 is in use, and 0 is not");
    assert_eq!(bed::device(&backend, 1).calls(Call::AllocatePinned), 1);
    cachette_adapter_unpin(memory);
    assert_eq!(pin(3 * MIB, 0), memory);
    cachette_adapter_unpin(memory);
    cachette_adapter_pinned_empty();
    let figures = figures();
    assert_eq!((figures.counts, figures.stats[3]), ([1, 1], [0, 3 << 20, 3 << 20, 3 << 20]));
}

fn waits() {
    let backend = bed::start_over("", false);
    let memory = pin(MIB, 0);
    let streams = [0, 1].map(bed::stream);
    let blocked = |number| bed::device(&backend, number).hold(streams[number as usize].handle()).unwrap();
    let held = [0, 1].map(blocked);
    for (device, stream) in (0..).zip(&streams) {
        assert!(record(memory, device, handle(stream.handle())));
    }
    cachette_adapter_unpin(memory);
    for (hold, stream) in held.into_iter().zip(&streams) {
        let other = pin(MIB, 0);
        assert_ne!(other, memory, "a stream still uses it");
        cachette_adapter_unpin(other);
        drop(hold);
        stream.synchronize().unwrap();
    }
    let both = [pin(MIB, 0), pin(MIB, 0)];
    assert!(both.contains(&memory));
}

fn parts() {
    bed::start_over("", false);
    let memory = pin(2 * MIB, 0);
    let inside = memory.wrapping_byte_add(12345);
    assert!(record(memory, 0, ptr::null_mut()) && record(inside, 0, ptr::null_mut()));
    let mut other = 0_u8;
    assert!(!record((&raw mut other).cast(), 0, ptr::null_mut()));
    assert!(!record(ptr::null_mut(), 0, ptr::null_mut()));
    cachette_adapter_unpin(memory);
    cachette_adapter_pinned_empty();
    assert!(!record(memory, 0, ptr::null_mut()), "it is gone");
}

/// The calls that PyTorch makes for a graph on another device than that of the cache.
fn captured() {
    let backend = bed::start_over("", false);
    let (before, inside) = (pin(MIB, 0), pin(MIB, 0));
    let (device, stream) = (bed::device(&backend, 1), bed::stream(1));
    begin(1, POOL);
    let capture = device.capture().unwrap();
    // SAFETY: 1. the stream lives as long as the case.
    unsafe { capture.begin_capture(stream.handle(), CaptureMode::Global) }.unwrap();
    for memory in [before, inside] {
        assert!(record(memory, 1, handle(stream.handle())));
    }
    cachette_adapter_unpin(inside);
    // SAFETY: 1. the stream lives as long as the case.
    let graph = unsafe { capture.end_capture(stream.handle()) }.unwrap();
    end(1, POOL);
    cachette_adapter_unpin(before);
    cachette_adapter_pinned_empty();
    let others = [pin(MIB, 0), pin(MIB, 0)];
    assert!(!others.contains(&before) && !others.contains(&inside), "the graph has them");
    release(1, POOL);
    // SAFETY: 1. it was made above.
    unsafe { capture.destroy_graph(graph) }.unwrap();
    let later = [pin(MIB, 0), pin(MIB, 0)];
    assert!(later.contains(&before) && later.contains(&inside), "they serve again");
}

fn zeros() {
    bed::start("");
    assert_eq!(pin(0, 0), ptr::null_mut());
    cachette_adapter_unpin(ptr::null_mut());
    cachette_adapter_pinned_empty();
    cachette_adapter_pinned_reset(true);
    assert_eq!(figures(), PinnedFigures::default());
    assert_eq!(counters(), cachette_torch::Counters::default());
}

fn unknown() {
    bed::start_over("", false);
    let memory = pin(MIB, 0);
    cachette_adapter_unpin(memory.wrapping_byte_add(512));
    cachette_adapter_unpin(memory);
    cachette_adapter_unpin(memory);
    assert_eq!(counters().failed_unpins, 2);
    cachette_adapter_pinned_reset(false);
    assert_eq!((figures().stats[0][0], figures().counts), (0, [0, 0]));
}

fn native() {
    bed::start("pinned:native");
    assert!(!cachette_adapter_pins());
}
