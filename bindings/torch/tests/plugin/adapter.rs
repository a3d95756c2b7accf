//! What a compiled class asks: memory by address, figures, pools, saved states, snapshots, and those who are told.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cachette_torch::adapter::{
    BlockEntry, EventEntry, Figures, PoolSource, SegmentEntry, Text, User, Visitor, cachette_adapter_allocate_at,
    cachette_adapter_bytes, cachette_adapter_caches, cachette_adapter_checkpoint, cachette_adapter_drop_checkpoint,
    cachette_adapter_empty_pool, cachette_adapter_free, cachette_adapter_largest, cachette_adapter_memory_fraction,
    cachette_adapter_on_out_of_memory, cachette_adapter_on_pressure, cachette_adapter_pool_holds,
    cachette_adapter_pool_uses, cachette_adapter_record_history, cachette_adapter_records_history,
    cachette_adapter_reset_peaks, cachette_adapter_reset_totals, cachette_adapter_restore,
    cachette_adapter_set_caching, cachette_adapter_set_no_split, cachette_adapter_snapshot, cachette_adapter_stats,
    cachette_adapter_track, cachette_adapter_use_pool,
};
use cachette_torch::{MempoolId, cachette_torch_memory_fraction, cachette_torch_reset, counters};

use super::Case;
use super::bed::{self, CAPACITY, DEFAULT, MIB, allocate, call};
use super::pools::{POOL, begin, end, release};

pub(crate) const CASES: &[Case] = &[
    ("m1_memory_is_freed_by_its_address_alone", by_address),
    ("memory_is_allocated_again_at_its_address", again_at_its_address),
    ("m9_an_unknown_address_is_counted_once", unknown),
    ("s1_figures_are_those_of_the_allocator", figures),
    ("s1_a_device_that_nobody_used_has_zeros", unused),
    ("t2_emptying_counts_for_devices_that_nobody_used", emptied_unused),
    ("m23_caching_is_switched_off_for_every_device", uncached),
    ("p2_whoever_joins_a_pool_is_a_user_of_it", users),
    ("p4_a_pool_takes_its_segments_from_its_source", sourced),
    ("p5_a_pool_that_never_splits_has_a_segment_for_each", unsplit),
    ("k1_a_saved_state_comes_back_at_its_addresses", restored),
    ("h5_a_snapshot_tells_every_piece", pieces),
    ("h1_each_stack_has_one_context_of_pytorch", contexts),
    ("m18_observers_and_trackers_are_told_of_every_device", told),
    ("m17_memory_is_asked_back_before_a_device_gives_more", pressed),
];

fn free(memory: *mut c_void) {
    call!(cachette_adapter_free(memory));
}

fn stats(device: c_int) -> Figures {
    let mut figures = Figures::default();
    call!(cachette_adapter_stats(device, &raw mut figures));
    figures
}

/// The bytes of a block, and its device.
fn found(memory: *mut c_void) -> (u64, c_int) {
    let mut device = 77;
    let bytes = call!(cachette_adapter_bytes(memory, &raw mut device));
    (bytes, device)
}

fn join(id: MempoolId, source: Option<&PoolSource>) {
    call!(cachette_adapter_use_pool(0, id, source.map_or(ptr::null(), ptr::from_ref)));
}

fn uses(id: MempoolId) -> u64 {
    cachette_adapter_pool_uses(0, id)
}

fn by_address() {
    bed::start("");
    let first = allocate(3 * MIB, 0, DEFAULT);
    let second = allocate(5 * MIB, 1, DEFAULT);
    assert_eq!([first, second].map(found), [(3 * MIB, 0), (5 * MIB, 1)]);
    free(second);
    assert_eq!(bed::allocator(1).allocated_bytes(), 0);
    assert_eq!(bed::allocator(0).allocated_bytes(), 3 * MIB);
    free(first);
    free(ptr::null_mut());
    assert_eq!(bed::allocator(0).allocated_bytes(), 0);
    assert_eq!(counters(), cachette_torch::Counters::default());
}

fn again_at_its_address() {
    bed::start("");
    let old = allocate(12 * MIB, 1, DEFAULT);
    free(old);
    let at = old.wrapping_byte_add(4 << 20);
    call!(cachette_adapter_allocate_at(at, 3 << 20, 1, ptr::null_mut()));
    assert_eq!(found(at), (3 * MIB, 1));
    assert_eq!(bed::allocator(1).allocated_bytes(), 3 * MIB);
    free(at);
    assert_eq!(allocate(12 * MIB, 1, DEFAULT), old);
    free(old);
    assert_eq!(counters(), cachette_torch::Counters::default());
}

fn unknown() {
    bed::start("");
    free(ptr::without_provenance_mut(512));
    let memory = allocate(MIB, 1, DEFAULT);
    free(memory);
    free(memory);
    assert_eq!(counters().unknown_frees, 2);
    assert_eq!(found(memory), (0, -1));
}

fn figures() {
    bed::start("");
    let memory = allocate(30 * MIB, 0, DEFAULT);
    let (bytes, mib) = (30 * MIB.cast_signed(), MIB.cast_signed());
    let held = stats(0);
    assert_eq!(held.arrays[0][0], [1, 1, 1, 0], "allocations");
    assert_eq!(held.arrays[4][2], [bytes, bytes, bytes, 0], "large bytes");
    assert_eq!(held.arrays[5][0][0], 30 * mib, "reserved");
    assert_eq!((held.counts[3], held.counts[5]), (1, -1));
    free(memory);
    cachette_adapter_reset_peaks(0);
    assert_eq!(stats(0).arrays[4][0], [0, 0, bytes, bytes]);
    cachette_torch_memory_fraction(0.5, 0);
    let fraction = cachette_adapter_memory_fraction(0);
    assert!((fraction - 0.5).abs() < 1e-9);
    assert_eq!(cachette_adapter_largest(0), CAPACITY / 2 - 30 * MIB);
}

fn unused() {
    bed::start("");
    assert_eq!(stats(1), Figures::default());
    assert_eq!(stats(-1), Figures::default());
    cachette_adapter_reset_peaks(1);
    assert_eq!(cachette_process::opened().count(), 0, "asking opens nothing");
}

/// Waits for all streams that are counted, by device.
fn waits() -> [i64; 2] {
    [0, 1].map(|device| stats(device).counts[2])
}

fn emptied_unused() {
    bed::start("");
    cachette_torch_reset();
    assert_eq!((waits(), cachette_process::opened().count()), ([1, 1], 0), "emptying opens nothing");
    free(allocate(MIB, 0, DEFAULT));
    assert_eq!(waits(), [1, 1], "an opened device keeps its count");
    cachette_torch_reset();
    assert_eq!(waits(), [2, 2]);
    cachette_adapter_reset_totals(0);
    assert_eq!(waits(), [0, 2]);
}

fn uncached() {
    bed::start("");
    let cache = |on| {
        cachette_adapter_set_caching(on);
        assert_eq!(cachette_adapter_caches(), on);
    };
    let kept = allocate(30 * MIB, 0, DEFAULT);
    cache(false);
    for device in [0, 1] {
        free(allocate(30 * MIB, device, DEFAULT));
        assert_eq!(stats(device).arrays[3][0][0], 0, "nothing is left over");
    }
    assert_eq!(bed::allocator(1).reserved_bytes(), 0, "it is opened since");
    free(kept);
    cache(true);
    free(allocate(30 * MIB, 1, DEFAULT));
    assert_eq!(bed::allocator(1).reserved_bytes(), 30 * MIB);
    assert_eq!(counters(), cachette_torch::Counters::default());
}

fn users() {
    bed::start("");
    assert_eq!(uses(POOL), 0);
    join(POOL, None);
    begin(0, POOL);
    assert_eq!(uses(POOL), 2);
    let memory = allocate(30 * MIB, 0, DEFAULT);
    end(0, POOL);
    let holds = |addresses: &[u64]| call!(cachette_adapter_pool_holds(0, POOL, addresses.as_ptr(), addresses.len()));
    assert!(holds(&[memory as u64]) && !holds(&[]));
    free(memory);
    release(0, POOL);
    assert_eq!((uses(POOL), bed::allocator(0).reserved_bytes()), (1, 30 * MIB));
    release(0, POOL);
    assert_eq!((uses(POOL), bed::allocator(0).reserved_bytes()), (0, 0));
}

static MADE: AtomicU64 = AtomicU64::new(0);
static TAKEN_BACK: AtomicU64 = AtomicU64::new(0);
static CLOSED: AtomicU64 = AtomicU64::new(0);

/// A source of made-up addresses that counts.
fn source() -> PoolSource {
    unsafe extern "C" fn make(user: User, _: u64, device: c_int, _: *mut c_void) -> *mut c_void {
        assert_eq!((user.0 as usize, device), (77, 0));
        let number = MADE.fetch_add(1, Relaxed) + 1;
        ptr::without_provenance_mut(usize::try_from(number).unwrap() << 40)
    }
    unsafe extern "C" fn take_back(user: User, _: *mut c_void) {
        assert_eq!(user.0 as usize, 77);
        TAKEN_BACK.fetch_add(1, Relaxed);
    }
    unsafe extern "C" fn close(_: User) {
        CLOSED.fetch_add(1, Relaxed);
    }
    PoolSource { allocate: make, free: take_back, close, user: User(ptr::without_provenance_mut(77)) }
}

fn counts() -> [u64; 3] {
    [&MADE, &TAKEN_BACK, &CLOSED].map(|count| count.load(Relaxed))
}

fn sourced() {
    bed::start("");
    join(POOL, Some(&source()));
    begin(0, POOL);
    let memory = allocate(30 * MIB, 0, DEFAULT);
    end(0, POOL);
    assert_eq!((memory as u64, counts()), (1 << 40, [1, 0, 0]));
    // The pool is there, so a second source has nothing to do.
    join(POOL, Some(&source()));
    assert_eq!(counts(), [1, 0, 1]);
    free(memory);
    for _ in 0..3 {
        release(0, POOL);
    }
    assert_eq!(counts(), [1, 1, 2], "it is closed with its pool");
}

fn unsplit() {
    bed::start("");
    join(POOL, None);
    cachette_adapter_set_no_split(0, POOL);
    begin(0, POOL);
    let memory = [0; 3].map(|_| allocate(2 * MIB, 0, DEFAULT));
    end(0, POOL);
    assert_eq!(stats(0).arrays[1][0][0], 3, "segments");
    memory.into_iter().for_each(free);
    // It may be captured into, so nothing goes before its last user.
    cachette_adapter_empty_pool(POOL);
    assert_eq!(stats(0).arrays[1][0][0], 3);
    release(0, POOL);
    release(0, POOL);
    assert_eq!(stats(0).arrays[1][0][0], 0);
}

thread_local! {
    static HEARD: RefCell<Vec<(char, u64)>> = const { RefCell::new(Vec::new()) };
}

fn hear(kind: char, what: u64) {
    HEARD.with_borrow_mut(|heard| heard.push((kind, what)));
}

unsafe extern "C-unwind" fn freed(_: User, memory: *mut c_void) {
    hear('-', memory as u64);
}

unsafe extern "C-unwind" fn allocated(_: User, memory: *mut c_void) {
    hear('+', memory as u64);
}

const NO_USER: User = User(ptr::null_mut());

fn restored() {
    bed::start("");
    begin(0, POOL);
    let kept = allocate(4 * MIB, 0, DEFAULT);
    let saved = cachette_adapter_checkpoint(0, POOL);
    assert!(!saved.is_null());
    let later = allocate(6 * MIB, 0, DEFAULT);
    free(kept);
    call!(cachette_adapter_restore(0, saved, freed, allocated, NO_USER));
    let heard = HEARD.take();
    assert_eq!(heard, [('-', later as u64), ('+', kept as u64)]);
    assert_eq!(found(kept), (4 * MIB, 0));
    for each in [saved, ptr::null_mut()] {
        call!(cachette_adapter_drop_checkpoint(each));
    }
    end(0, POOL);
}

fn pieces() {
    unsafe extern "C-unwind" fn segment(_: User, segment: *const SegmentEntry) {
        // SAFETY: it lives during the call.
        let segment = unsafe { &*segment };
        assert_eq!((segment.device, segment.pool), (0, MempoolId::DEFAULT));
        assert_eq!((segment.large, segment.elastic), (true, false));
        assert_eq!(segment.order, 0, "it is the first");
        assert_eq!((segment.allocated, segment.requested), (3 * MIB, 3 * MIB - 5));
        hear('s', segment.bytes);
    }
    unsafe extern "C-unwind" fn block(_: User, block: *const BlockEntry) {
        // SAFETY: it lives during the call.
        let block = unsafe { &*block };
        assert_eq!(block.allocated, block.active);
        hear(if block.allocated { 'b' } else { 'f' }, block.bytes);
    }
    unsafe extern "C-unwind" fn event(_: User, event: *const EventEntry) {
        // SAFETY: it lives during the call.
        let event = unsafe { &*event };
        assert!(event.time_us > 0);
        hear('e', u64::try_from(event.action).unwrap());
    }
    bed::start("");
    let skip = Text { start: c"free_completed,oom".as_ptr().cast(), bytes: 18 };
    call!(cachette_adapter_record_history(true, 0, 1000, false, None, skip));
    assert!(cachette_adapter_records_history());
    let memory = allocate(3 * MIB - 5, 0, DEFAULT);
    let visitor = Visitor { segment, block, event, user: NO_USER };
    call!(cachette_adapter_snapshot(MempoolId::DEFAULT, true, &raw const visitor));
    let told = HEARD.take();
    let pieces = [('s', 20 * MIB), ('b', 3 * MIB), ('f', 17 * MIB)];
    assert_eq!(told, [&pieces[..], &[('e', 3), ('e', 0)]].concat());
    call!(cachette_adapter_snapshot(POOL, false, &raw const visitor));
    assert_eq!(HEARD.take(), [], "there is no such pool");
    free(memory);
}

fn contexts() {
    thread_local! {
        static CAPTURED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
        static BLOCKS: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
        static EVENTS: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    }
    extern "C" fn capture(stack: u32) {
        CAPTURED.with_borrow_mut(|captured| captured.push(stack));
    }
    unsafe extern "C-unwind" fn segment(_: User, _: *const SegmentEntry) {}
    unsafe extern "C-unwind" fn block(_: User, block: *const BlockEntry) {
        // SAFETY: it lives during the call.
        let block = unsafe { &*block };
        if block.allocated {
            BLOCKS.with_borrow_mut(|blocks| blocks.push(block.stack));
        }
    }
    unsafe extern "C-unwind" fn event(_: User, event: *const EventEntry) {
        // SAFETY: it lives during the call.
        EVENTS.with_borrow_mut(|events| events.push(unsafe { &*event }.stack));
    }
    bed::start("");
    let none = Text { start: c"".as_ptr().cast(), bytes: 0 };
    call!(cachette_adapter_record_history(true, 2, 1000, false, Some(capture), none));
    let many: Vec<_> = (0..10).map(|_| allocate(3 * MIB, 0, DEFAULT)).collect();
    let visitor = Visitor { segment, block, event, user: NO_USER };
    call!(cachette_adapter_snapshot(MempoolId::DEFAULT, true, &raw const visitor));
    let (captured, blocks) = (CAPTURED.take(), BLOCKS.take());
    // One line of the program: a hit, and misses of one kind or two.
    assert!(captured.len() <= 4, "{captured:?}");
    assert_eq!(blocks.len(), 10);
    assert!(blocks.iter().chain(&EVENTS.take()).all(|stack| captured.contains(stack)), "{captured:?}, {blocks:?}");
    call!(cachette_adapter_record_history(false, 0, 0, false, None, none));
    call!(cachette_adapter_snapshot(MempoolId::DEFAULT, true, &raw const visitor));
    assert_eq!(BLOCKS.take(), blocks, "memory in use keeps its context");
    assert_eq!(EVENTS.take(), [0; 0], "events go with the history");
    many.into_iter().for_each(free);
}

fn told() {
    unsafe extern "C" fn observe(_: User, device: i64, asked: u64, total: u64, _: u64) {
        assert_eq!(total, CAPACITY);
        hear('o', asked / MIB + u64::try_from(device).unwrap());
    }
    unsafe extern "C" fn track(_: User, event: *const EventEntry) {
        // SAFETY: it lives during the call.
        let event = unsafe { &*event };
        hear('t', u64::try_from(event.action * 10 + event.device).unwrap());
    }
    bed::start("");
    let memory = allocate(30 * MIB, 0, DEFAULT);
    call!(cachette_adapter_on_out_of_memory(observe, NO_USER));
    call!(cachette_adapter_track(track, NO_USER));
    free(memory);
    assert!(allocate(300 * MIB, 1, DEFAULT).is_null());
    let told = HEARD.take();
    assert!(told.starts_with(&[('t', 10), ('t', 20)]), "{told:?}");
    assert!(told.contains(&('o', 301)) && told.contains(&('t', 81)), "{told:?}");
}

fn pressed() {
    static HELD: AtomicU64 = AtomicU64::new(0);
    unsafe extern "C" fn relieve() -> bool {
        let held = HELD.swap(0, Relaxed);
        free(ptr::without_provenance_mut(usize::try_from(held).unwrap()));
        held != 0
    }
    bed::start("");
    call!(cachette_adapter_on_pressure(relieve));
    let held = allocate(200 * MIB, 0, DEFAULT);
    HELD.store(held as u64, Relaxed);
    assert_eq!(allocate(200 * MIB, 0, DEFAULT), held, "it was given up");
}
