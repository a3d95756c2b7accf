//! Pools that requests are led to.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cachette_torch::adapter::cachette_adapter_pool_uses;
use cachette_torch::{
    MempoolId, cachette_torch_begin_allocate_to_pool, cachette_torch_end_allocate_to_pool, cachette_torch_release_pool,
    cachette_torch_reset, counters,
};

use super::Case;
use super::bed::{self, DEFAULT, MIB, allocate, call, free};

pub(crate) const CASES: &[Case] = &[
    ("p6_memory_of_a_pool_stays_until_its_last_user_is_gone", stays),
    ("p6_memory_of_a_pool_stays_at_its_addresses_in_elastic_segments", stays_elastic),
    ("p3_a_pool_is_begun_once_at_a_time", begun_twice),
    ("p3_the_end_of_a_refused_filter_may_ask_for_pools", refused_filter),
    ("p6_a_pool_without_users_is_counted_and_not_thrown", no_user),
    ("p6_what_lives_in_a_pool_outlives_its_users", outlives),
];

pub(crate) const POOL: MempoolId = MempoolId { first: 0, second: 1 };

/// Leads every request of a device to a pool.
pub(crate) fn begin(device: i32, id: MempoolId) {
    call!(cachette_torch_begin_allocate_to_pool(device, id, ptr::null()));
}

pub(crate) fn end(device: i32, id: MempoolId) {
    cachette_torch_end_allocate_to_pool(device, id);
}

pub(crate) fn release(device: i32, id: MempoolId) {
    call!(cachette_torch_release_pool(device, id));
}

fn reset() {
    cachette_torch_reset();
}

fn stays() {
    bed::start("");
    begin(0, POOL);
    let memory = allocate(30 * MIB, 0, DEFAULT);
    free(memory, 0);
    end(0, POOL);
    let outside = allocate(30 * MIB, 0, DEFAULT);
    assert_ne!(outside, memory, "the pool's memory is its own");
    free(outside, 0);
    reset();
    assert_eq!(bed::allocator(0).reserved_bytes(), 30 * MIB, "a graph may use it");
    release(0, POOL);
    assert_eq!(bed::allocator(0).reserved_bytes(), 0);
    assert_eq!(counters(), cachette_torch::Counters::default());
}

fn stays_elastic() {
    bed::start("expandable_segments:True");
    begin(0, POOL);
    let memory = allocate(100 * MIB, 0, DEFAULT);
    free(memory, 0);
    end(0, POOL);
    // Together they need more than the device has, so chunks of the pool would have to move.
    let first = allocate(100 * MIB, 0, DEFAULT);
    assert!(!first.is_null());
    assert!(allocate(100 * MIB, 0, bed::stream(0).handle()).is_null(), "none does");
    begin(0, POOL);
    assert_eq!(allocate(100 * MIB, 0, DEFAULT), memory, "it is where it was");
    free(memory, 0);
    end(0, POOL);
    release(0, POOL);
    assert!(allocate(100 * MIB, 0, bed::stream(0).handle()).is_null(), "one user is left");
    release(0, POOL);
    assert!(!allocate(100 * MIB, 0, bed::stream(0).handle()).is_null(), "now they do");
}

fn begun_twice() {
    bed::start("");
    begin(0, POOL);
    // It is refused, and makes no user.
    begin(0, POOL);
    free(allocate(30 * MIB, 0, DEFAULT), 0);
    end(0, POOL);
    release(0, POOL);
    assert_eq!(bed::allocator(0).reserved_bytes(), 0);
    // The same name on another device is another pool.
    begin(1, POOL);
    end(1, POOL);
    release(1, POOL);
    assert_eq!(counters().failed_releases, 0);
}

/// The layout of a `std::function` of libstdc++.
#[repr(C)]
struct Function {
    storage: [usize; 2],
    manage: extern "C-unwind" fn(*mut c_void, *const c_void, c_int) -> bool,
    invoke: extern "C-unwind" fn(*const c_void, *mut *mut c_void) -> bool,
}

/// The users of the pool that the destructor of a filter found, and zero if it got no answer.
static FOUND: AtomicU64 = AtomicU64::new(0);

extern "C-unwind" fn manage(_: *mut c_void, _: *const c_void, operation: c_int) -> bool {
    const DESTROY: c_int = 3;
    if operation == DESTROY {
        let (answer, answered) = mpsc::channel();
        thread::spawn(move || answer.send(cachette_adapter_pool_uses(0, POOL)));
        FOUND.store(answered.recv_timeout(Duration::from_secs(5)).unwrap_or(0), Relaxed);
    }
    false
}

extern "C-unwind" fn every_stream(_: *const c_void, _: *mut *mut c_void) -> bool {
    true
}

fn refused_filter() {
    bed::start("");
    begin(0, POOL);
    let function = Function { storage: [0; 2], manage, invoke: every_stream };
    call!(cachette_torch_begin_allocate_to_pool(0, POOL, (&raw const function).cast()));
    assert_eq!(FOUND.load(Relaxed), 1, "no lock is held while the filter is destroyed");
    end(0, POOL);
    release(0, POOL);
}

fn no_user() {
    bed::start("");
    release(0, POOL);
    release(5, POOL);
    assert_eq!(counters().failed_releases, 2);
}

fn outlives() {
    bed::start("");
    begin(0, POOL);
    let memory = allocate(30 * MIB, 0, DEFAULT);
    end(0, POOL);
    release(0, POOL);
    assert_eq!(bed::allocator(0).allocated_bytes(), 30 * MIB);
    free(memory, 0);
    reset();
    assert_eq!(bed::allocator(0).reserved_bytes(), 0);
    // Its name may be used again.
    begin(0, POOL);
    end(0, POOL);
    release(0, POOL);
    assert_eq!(counters(), cachette_torch::Counters::default());
}
