//! Streams that the program destroys while the allocator knows them: drivers crash on most calls for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cachette::hal::{Call, CaptureMode, Device, ErrorKind, Stream as RawStream, StreamRef};
use cachette_hal::traced::{DriverCall, Observer};
use cachette_hal_host::HostConfig;

use crate::fixture::{MIB, Stream, TestAllocator};

/// Counts the calls that name a destroyed stream, except queries and records: a backend refuses those before they reach
/// the driver, and a free with recorded uses makes no other call first.
#[derive(Default)]
struct Watch {
    gone: AtomicUsize,
    calls: AtomicUsize,
}

impl Observer for Watch {
    fn call(&self, _: &DriverCall) {}

    fn before(&self, call: Call, _: u64, _: u64, stream: Option<StreamRef>) {
        let is_refused = matches!(call, Call::CaptureStatus | Call::Frontier | Call::Record);
        if !is_refused && stream.is_some_and(|stream| stream.raw() == self.gone.load(Ordering::Relaxed)) {
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// An allocator, a stream of it, and a stream of the program that [`destroy`](Self::destroy) destroys.
struct Setting {
    test: TestAllocator,
    watch: Arc<Watch>,
    stream: Stream,
    early: Stream,
}

impl Setting {
    fn new(config: &str) -> Self {
        let watch = Arc::new(Watch::default());
        let host = HostConfig::default().capacity(64 * MIB);
        let test = TestAllocator::traced(host, config, Arc::clone(&watch));
        let (stream, raw) = (test.stream(), test.device.create_stream().expect("the device makes streams"));
        // SAFETY: 1. the stream was created above. 2. is broken by the tests, on purpose.
        let early = unsafe { test.allocator.adopt_stream(raw.borrow()) }.expect("it is live");
        Self { test, watch, stream, early }
    }

    fn destroy(&self) {
        let raw = self.early.handle().raw();
        // SAFETY: 1. the setting created the stream.
        unsafe { self.test.device.destroy_stream(RawStream::from_raw(raw)) }.expect("it is live");
        self.watch.gone.store(raw, Ordering::Relaxed);
    }

    /// Checks that all memory returns to the device, without a call that names the destroyed stream.
    fn expect_unused(self, text: &str) {
        self.test.allocator.empty_cache().expect("the device frees memory");
        assert_eq!(self.test.stats().reserved_bytes.all.current, 0, "{text}");
        assert_eq!(self.watch.calls.load(Ordering::Relaxed), 0, "calls for a destroyed stream: {text}");
    }
}

const ALL: [&str; 3] = ["", "expandable_segments:True", "backend:cudaMallocAsync"];

#[test]
fn memory_of_a_destroyed_stream_goes_to_the_drivers_pool_behind_its_work() {
    let on = Setting::new("backend:cudaMallocAsync");
    let own = on.test.allocate(24 * MIB, &on.early);
    on.destroy();
    assert_eq!(on.test.calls_of(Call::SynchronizeDevice, || drop(own)), 1);
    on.expect_unused("its work may still run");
}

#[test]
fn memory_of_a_destroyed_stream_is_freed_without_a_call_for_it() {
    for text in ALL {
        let on = Setting::new(text);
        let own = on.test.allocate(24 * MIB, &on.early);
        on.destroy();
        drop(own);
        // It serves where it is needed.
        drop(on.test.allocate(48 * MIB, &on.stream));
        on.expect_unused(text);
    }
}

#[test]
fn memory_that_a_destroyed_stream_used_is_freed_without_a_call_for_it() {
    for text in ALL {
        let on = Setting::new(text);
        let [used, released] = [on.test.allocate(12 * MIB, &on.stream), on.test.allocate(4 * MIB, &on.stream)];
        used.record_stream(&on.early);
        on.destroy();
        drop(used);
        released.release_after(&[&on.early]).unwrap();
        drop(on.test.allocate(12 * MIB, &on.stream));
        on.expect_unused(text);
    }
}

#[test]
fn pinned_memory_that_a_destroyed_stream_used_is_freed_without_a_call_for_it() {
    let on = Setting::new("");
    let used = on.test.allocator.pinned().allocate(1 << 20).unwrap();
    used.record_stream(&on.early);
    on.destroy();
    drop(used);
    assert!(on.test.allocator.pinned().empty_cache().unwrap() > 0);
    on.expect_unused("");
}

#[test]
fn the_memory_of_a_graph_that_a_destroyed_stream_launched_is_freed_without_a_call_for_it() {
    for text in ["", "expandable_segments:True"] {
        let on = Setting::new(text);
        let pool = on.test.allocator.create_capture_pool();
        let capture = pool.begin_capture(&on.stream, CaptureMode::Relaxed).unwrap();
        drop(on.test.allocate(4 * MIB, &on.stream));
        let graph = capture.end().unwrap();
        // SAFETY: the graph is empty.
        unsafe { graph.launch(&on.early) }.unwrap();
        on.destroy();
        drop((graph, pool));
        on.expect_unused(text);
    }
}

#[test]
fn a_new_stream_with_the_handle_of_a_destroyed_one_is_used_as_any_other() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let used = test.allocate(12 * MIB, &stream);
    used.record_stream(&side);
    // The first query finds the old stream destroyed; before the record a new one has its handle.
    test.device.fail_next(Call::CaptureStatus, 1, ErrorKind::InvalidHandle);
    drop(used);
    assert_eq!(test.device.calls(Call::Record), 1);
    assert_eq!(test.device.calls(Call::SynchronizeDevice), 0, "no wait for the device");
}
