//! Threads that share an allocator, and a stream.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use cachette::{Allocator, Config, Stream};
use cachette_hal::traced::DriverCall;
use cachette_hal::traced::Traced;
use cachette_hal::{AnyDevice, Call, Device, Ordinal, Use};
use cachette_hal_host::{HostBackend, HostConfig};
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

/// A driver can give freed memory to another thread before the thread that freed it continues.
#[test]
fn memory_that_another_thread_gets_during_a_free_has_no_finding() {
    let (free, freeing) = mpsc::sync_channel(0);
    let (give, given) = mpsc::sync_channel(0);
    let given = Mutex::new(given);
    // Its addresses are reused at once.
    let host = HostBackend::new(HostConfig::default().phantom(true)).unwrap().device(Ordinal(0)).unwrap();
    let hooked = Traced::new(host, move |call: &DriverCall| {
        if call.call == Call::Free && free.send(()).is_ok() {
            given.lock().unwrap().recv().unwrap();
        }
    });
    let sanitizer = DeviceSanitizer::new(Options::default());
    let device: AnyDevice = Arc::new(sanitizer.around(hooked));
    let direct = Config::builder().expandable_segments(false).build().unwrap();
    let allocator = Allocator::with_config(device, &direct);
    sanitizer.track(&allocator);
    let [stream, other] = [(); 2].map(|()| allocator.create_stream().unwrap());
    thread::scope(|scope| {
        let (allocator, other) = (&allocator, &other);
        let getter = scope.spawn(move || {
            freeing.recv().unwrap();
            let memory = allocator.allocate(20 << 20, other).unwrap();
            give.send(()).unwrap();
            memory
        });
        let freed = allocator.allocate(20 << 20, &stream).unwrap().ptr();
        allocator.empty_cache().unwrap();
        let memory = getter.join().unwrap();
        assert_eq!(memory.ptr(), freed, "the driver gives the same address");
        other.uses(&memory, Use::Write);
    });
    let findings = sanitizer.findings();
    assert!(findings.is_empty(), "{}", findings[0]);
}
