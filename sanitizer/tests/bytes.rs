//! The memory of the sanitizer itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cachette_hal::Use;
use cachette_sanitizer::{Options, Sanitizer, Site, StreamId, Text};

struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promises.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// Bytes for each of the uses that `report` makes.
fn bytes_per_use(uses: u64, mut report: impl FnMut(&mut Sanitizer, u64)) -> u64 {
    let before = BYTES.load(Relaxed);
    let mut sanitizer = Sanitizer::new(Options::default());
    for number in 0..uses {
        report(&mut sanitizer, number);
    }
    let bytes = (BYTES.load(Relaxed) - before) as u64;
    drop(sanitizer);
    bytes / uses
}

#[test]
fn a_use_takes_at_most_two_hundred_bytes() {
    let main = StreamId(1);
    let live = bytes_per_use(100_000, |sanitizer, number| {
        sanitizer.allocate(main, number * 512, 512, Site(1));
        sanitizer.uses(main, number * 512, Use::Write, Text::default(), Site(2));
    });
    let freed = bytes_per_use(100_000, |sanitizer, number| {
        sanitizer.allocate(main, number * 512, 512, Site(1));
        sanitizer.uses(main, number * 512, Use::Write, Text::default(), Site(2));
        sanitizer.free(number * 512, Site(3));
    });
    let reused = bytes_per_use(100_000, |sanitizer, number| {
        let address = number % 1000 * 512;
        sanitizer.allocate(StreamId(number % 7), address, 512, Site(1));
        sanitizer.uses(StreamId(number % 7), address, Use::Write, Text::default(), Site(2));
        sanitizer.free(address, Site(3));
    });
    println!("bytes a use: {live} live, {freed} freed, {reused} reused");
    assert!(live <= 200 && freed <= 200 && reused <= 200, "{live} {freed} {reused}");
}
