//! What memory a piece of code took.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts for each thread what [`usage`] tells.
///
/// A test binary makes it its `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

/// What a piece of code took, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The most that it held at once, beyond what was held before.
    pub peak: usize,
    /// All that it asked for, whether given back or not: work shows here that no peak shows.
    pub total: usize,
}

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static USAGE: Cell<Usage> = const { Cell::new(Usage { peak: 0, total: 0 }) };
}

/// Runs a piece of code, and says what it took in this thread.
pub fn usage<R>(run: impl FnOnce() -> R) -> (R, Usage) {
    HELD.set(0);
    USAGE.set(Usage::default());
    let result = run();
    (result, USAGE.get())
}

fn note(taken: usize, given: usize) {
    // A thread that ends has no counters any more.
    let _ = HELD.try_with(|held| {
        let now = held.get().wrapping_add_unsigned(taken);
        held.set(now.wrapping_sub_unsigned(given));
        let now = usize::try_from(held.get()).unwrap_or(0);
        let _ = USAGE.try_with(|usage| {
            usage.set(Usage { peak: usage.get().peak.max(now), total: usage.get().total.saturating_add(taken) });
        });
    });
}

// SAFETY: every call goes on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(bytes, layout.size());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(at, layout, bytes) }
    }
}
