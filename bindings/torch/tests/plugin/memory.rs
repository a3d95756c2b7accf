//! Allocating, freeing, and the hooks that concern memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

use cachette::hal::{Call, ErrorKind};
use cachette_torch::{
    cachette_torch_base_alloc, cachette_torch_init, cachette_torch_memory_fraction, cachette_torch_record_stream,
    cachette_torch_reset, counters,
};

use super::Case;
use super::bed::{self, DEFAULT, MIB, allocate, call, free, handle};

pub(crate) const CASES: &[Case] = &[
    ("s2_no_bytes_are_null_and_null_frees_nothing", nothing),
    ("a_pair_reuses_its_block_and_counts", pairs),
    ("a_hit_calls_no_driver_and_allocates_nothing", quiet),
    ("s3_m4_exhaustion_leaves_all_usable", exhaustion),
    ("s18_an_unknown_address_is_counted_and_never_thrown", unknown_free),
    ("a_driver_that_is_shut_down_is_not_complained_about", shut_down),
    ("a_failing_driver_is_counted", failing),
    ("e1_recorded_uses_hold_memory_back", recorded),
    ("e1_what_is_not_ours_is_ignored", not_recorded),
    ("reset_gives_unused_memory_of_all_devices_back_although_one_fails", reset),
    ("m15_a_fraction_bounds_the_device", fraction),
    ("base_alloc_finds_the_segment", base),
];

/// Counts what this thread allocates of the host's own memory.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: everything is the system's own, but for a count beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn nothing() {
    bed::start("");
    assert!(allocate(0, 0, DEFAULT).is_null());
    free(ptr::null_mut(), 0);
    assert_eq!(counters(), cachette_torch::Counters::default());
    assert_eq!(cachette_process::opened().count(), 0, "nothing was needed");
}

fn pairs() {
    bed::start("");
    let stream = bed::stream(0).handle();
    let first = allocate(1000, 0, stream);
    assert_eq!(bed::allocator(0).allocated_bytes(), 1024);
    free(first, 0);
    assert_eq!(bed::allocator(0).allocated_bytes(), 0);
    assert_eq!(allocate(1000, 0, stream), first);
    assert_ne!(allocate(1000, 1, DEFAULT), first, "devices share nothing");
}

fn quiet() {
    let backend = bed::start("");
    let device = bed::device(&backend, 0);
    let stream = bed::stream(0).handle();
    let all = || {
        for bytes in [1000, MIB, 16 * MIB] {
            free(allocate(bytes, 0, stream), 0);
        }
    };
    all();
    let before = (device.total_calls(), COUNT.get());
    for _ in 0..100 {
        all();
    }
    assert_eq!((device.total_calls(), COUNT.get()), before);
}

fn exhaustion() {
    bed::start("");
    let most = allocate(200 * MIB, 0, DEFAULT);
    assert!(!most.is_null());
    for refused in [100 * MIB, 1 << 60, u64::MAX] {
        assert!(allocate(refused, 0, DEFAULT).is_null(), "{refused}");
    }
    free(most, 0);
    assert!(!allocate(100 * MIB, 0, DEFAULT).is_null());
    assert_eq!(counters(), cachette_torch::Counters::default());
}

fn unknown_free() {
    bed::start("");
    let memory = allocate(MIB, 0, DEFAULT);
    free(ptr::without_provenance_mut(0x1234_5678_9000), 0);
    free(memory, 7);
    free(memory, -1);
    free(memory.wrapping_byte_add(512), 0);
    assert_eq!(counters().unknown_frees, 4);
    assert_eq!(bed::allocator(0).allocated_bytes(), MIB);
    free(memory, 0);
    free(memory, 0);
    assert_eq!(counters().unknown_frees, 5);
    assert_eq!(bed::allocator(0).allocated_bytes(), 0);
}

/// Frees memory that another stream uses, while the driver fails to mark that use.
fn free_with(kind: ErrorKind) {
    let backend = bed::start("");
    let (own, other) = (bed::stream(0), bed::stream(0));
    let memory = allocate(MIB, 0, own.handle());
    call!(cachette_torch_record_stream(memory, handle(other.handle())));
    let device = bed::device(&backend, 0);
    device.fail_next(Call::Record, 1, kind);
    device.fail_next(Call::CreateEvent, 1, kind);
    free(memory, 0);
    device.clear_failures();
}

fn shut_down() {
    free_with(ErrorKind::ShuttingDown);
    assert_eq!(counters(), cachette_torch::Counters::default());
}

fn failing() {
    free_with(ErrorKind::Other);
    let counted = counters();
    assert_eq!((counted.failed_frees, counted.unknown_frees), (1, 0));
}

fn recorded() {
    let backend = bed::start("");
    let (own, other) = (bed::stream(0), bed::stream(0));
    let memory = allocate(MIB, 0, own.handle());
    let hold = bed::device(&backend, 0).hold(other.handle()).unwrap();
    call!(cachette_torch_record_stream(memory, handle(other.handle())));
    free(memory, 0);
    assert_ne!(allocate(MIB, 0, own.handle()), memory, "the other stream still uses it");
    drop(hold);
    other.synchronize().unwrap();
    assert_eq!(allocate(MIB, 0, own.handle()), memory);
    assert_eq!(counters().unknown_uses, 0);
}

fn not_recorded() {
    bed::start("");
    let own = bed::stream(0);
    let memory = allocate(MIB, 0, own.handle());
    let record = |memory, stream| {
        call!(cachette_torch_record_stream(memory, stream));
    };
    record(ptr::null_mut(), handle(own.handle()));
    record(memory, handle(own.handle()));
    assert_eq!(counters().unknown_uses, 0, "null and the own stream are fine");
    free(memory, 0);
    assert_eq!(allocate(MIB, 0, own.handle()), memory, "the own stream holds nothing back");
    record(ptr::without_provenance_mut(0x1234_5678_9000), handle(own.handle()));
    assert_eq!(counters().unknown_uses, 1);
}

fn reset() {
    let backend = bed::start("");
    for device in [0, 1] {
        free(allocate(30 * MIB, device, DEFAULT), device);
    }
    let kept = allocate(30 * MIB, 1, bed::stream(1).handle());
    let reserved = || [0, 1].map(|device| bed::allocator(device).reserved_bytes());
    assert_eq!(reserved(), [30 * MIB, 60 * MIB]);
    bed::device(&backend, 0).fail_next(Call::Free, 1, ErrorKind::Other);
    cachette_torch_reset();
    assert_eq!(reserved(), [30 * MIB; 2], "one device fails");
    cachette_torch_reset();
    assert_eq!(reserved(), [0, 30 * MIB]);
    free(kept, 1);
}

fn fraction() {
    bed::start("");
    let set = |fraction, device| {
        cachette_torch_memory_fraction(fraction, device);
    };
    cachette_torch_init(0);
    set(0.5, 0);
    assert!(allocate(bed::CAPACITY / 2 + MIB, 0, DEFAULT).is_null());
    assert!(!allocate(bed::CAPACITY / 2 - MIB, 0, DEFAULT).is_null());
    set(1.5, 0);
    assert_eq!(bed::allocator(0).memory_limit(), Some(bed::CAPACITY / 2), "it was refused");
    assert!(!allocate(bed::CAPACITY / 2 + MIB, 1, DEFAULT).is_null());
}

fn base() {
    bed::start("");
    let first = allocate(2 * MIB, 1, DEFAULT);
    let second = allocate(2 * MIB, 1, DEFAULT);
    let base = |memory, bytes: &mut usize| call!(cachette_torch_base_alloc(memory, bytes));
    let mut bytes = 0;
    assert_eq!(base(second, &mut bytes), first);
    assert_eq!(bytes, 20 << 20);
    let found = call!(cachette_torch_base_alloc(second, ptr::null_mut()));
    assert_eq!(found, first);
    let mut untouched = 7;
    let foreign = ptr::without_provenance_mut(0x1234_5678_9000);
    assert_eq!(base(foreign, &mut untouched), foreign);
    assert_eq!(untouched, 7);
}
