//! Threads that share an allocator, and a stream.

use std::thread;

use cachette::{Allocator, Stream};
use cachette_hal::Device;
use cachette_sanitizer::{DeviceSanitizer, Options};

use crate::bed::sanitized;

/// Allocates, fills and frees memory of sizes that the threads share.
fn work(allocator: &Allocator, stream: &Stream, turns: u64) {
    for turn in 0..turns {
        let bytes = 512 << (turn * 7 % 8);
        let memory = allocator.allocate(bytes, stream).unwrap();
        let transfer = allocator.device().transfer().unwrap();
        // SAFETY: 1. the stream lives. 3. the memory is allocated, and is freed in the order of the stream.
        unsafe { transfer.fill(memory.ptr().unwrap(), 1, bytes, stream.handle()) }.unwrap();
    }
}

#[test]
fn threads_that_share_a_stream_have_no_finding() {
    let sanitizer = DeviceSanitizer::new(Options::default());
    let allocator = Allocator::new(sanitized(&sanitizer));
    sanitizer.track(&allocator);
    let shared = allocator.create_stream().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                work(&allocator, &shared, 300);
                work(&allocator, &allocator.create_stream().unwrap(), 300);
            });
        }
    });
    let findings = sanitizer.findings();
    assert!(findings.is_empty(), "{}", findings[0]);
}
