//! The fixture of the behaviour tests: an allocator on a device made of host memory.

#[path = "fixture/memory.rs"]
pub(crate) mod memory;
#[path = "fixture/threads.rs"]
pub(crate) mod threads;

use std::sync::Arc;

use cachette::hal::owned::OwnedEvent;
use cachette::hal::{AnyDevice, Call, CaptureMode, CaptureStatus, Device, ErrorKind, Ordinal};
pub(crate) use cachette::pool::{Capture, Graph};
pub(crate) use cachette::{Allocation, Pool, Stream};
use cachette::{Allocator, Config, Stats};
use cachette_hal::traced::Observer;
use cachette_hal::traced::Traced;
use cachette_hal_host::{Hold, HostBackend, HostConfig, HostDevice, Live};
use cachette_hal_testing::Checked;

use memory::{Interface, Range, TestMemory};

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// Elastic segments in chunks of one page, and no slack.
pub(crate) const ELASTIC: &str = "expandable_segments:True,elastic_setting:compact";

/// An allocator, and the host device beneath it.
pub(crate) struct TestAllocator {
    pub(crate) device: HostDevice,
    /// The device between them that notices every misuse of a handle, if there is one.
    pub(crate) checked: Option<Arc<Checked<HostDevice>>>,
    pub(crate) allocator: Allocator,
}

impl TestAllocator {
    /// A device of 1 GiB, and an allocator with direct segments.
    pub(crate) fn new() -> Self {
        Self::with("")
    }

    /// A device of 1 GiB, and an allocator configured by `text`.
    pub(crate) fn with(text: &str) -> Self {
        Self::on(HostConfig::default(), text)
    }

    /// The same on a device whose streams have threads, and on a stepped device.
    pub(crate) fn both(text: &str) -> [Self; 2] {
        let stepped = HostConfig::default().stepped(11);
        [Self::with(text), Self::on(stepped, text)]
    }

    /// A device of `capacity` bytes, and an allocator configured by `text`.
    pub(crate) fn of(capacity: u64, text: &str) -> Self {
        Self::on(HostConfig::default().capacity(capacity), text)
    }

    /// A device of `capacity` bytes without memory behind them, and an allocator configured by `text`.
    pub(crate) fn phantom(capacity: u64, text: &str) -> Self {
        Self::on(HostConfig::default().capacity(capacity).phantom(true), text)
    }

    /// A stepped device of 1 GiB, and an [`ELASTIC`] allocator, configured further by `text`.
    pub(crate) fn elastic(text: &str) -> Self {
        Self::elastic_on(HostConfig::default().stepped(5), text)
    }

    /// The same on the first device made like `host`.
    pub(crate) fn elastic_on(host: HostConfig, text: &str) -> Self {
        Self::on(host, &format!("{ELASTIC}{text}"))
    }

    /// The first device made like `host`, and an allocator configured by `text`.
    pub(crate) fn on(host: HostConfig, text: &str) -> Self {
        Self::over(device(host), text)
    }

    /// Another allocator on the same device, configured by `text`.
    pub(crate) fn beside(&self, text: &str) -> Self {
        Self::over(self.device.clone(), text)
    }

    /// An allocator for each of two devices of one backend.
    pub(crate) fn two_devices() -> [Self; 2] {
        Self::two_devices_on(HostConfig::default(), "")
    }

    /// An allocator on each of two such devices.
    pub(crate) fn two_devices_on(host: HostConfig, text: &str) -> [Self; 2] {
        let backend = HostBackend::new(host.devices(2).free_without_waiting()).expect("two devices can be made");
        [0, 1].map(|ordinal| Self::over(backend.device(Ordinal(ordinal)).expect("the backend has two devices"), text))
    }

    /// An allocator on a device that notices every misuse of a handle.
    pub(crate) fn checked(host: HostConfig, text: &str) -> Self {
        let device = device(host);
        let checked = Arc::new(Checked::new(device.clone()));
        let allocator = Allocator::with_config(Arc::clone(&checked) as AnyDevice, &config(text));
        Self { device, checked: Some(checked), allocator }
    }

    /// An allocator whose driver calls `observer` sees.
    pub(crate) fn traced(host: HostConfig, text: &str, observer: impl Observer + 'static) -> Self {
        Self::around(host, text, |device| Arc::new(Traced::new(device, observer)))
    }

    /// The first device made like `host`, wrapped by `wrap`, and an allocator configured by `text`.
    pub(crate) fn around(host: HostConfig, text: &str, wrap: impl FnOnce(HostDevice) -> AnyDevice) -> Self {
        let device = device(host);
        let allocator = Allocator::with_config(wrap(device.clone()), &config(text));
        Self { device, checked: None, allocator }
    }

    /// An allocator on `device`, configured by `text`.
    fn over(device: HostDevice, text: &str) -> Self {
        let allocator = Allocator::with_config(any(device.clone()), &config(text));
        Self { device, checked: None, allocator }
    }

    pub(crate) fn stream(&self) -> Stream {
        self.allocator.create_stream().expect("the device makes streams")
    }

    pub(crate) fn streams<const N: usize>(&self) -> [Stream; N] {
        std::array::from_fn(|_| self.stream())
    }

    /// The fixture, and streams of its allocator.
    pub(crate) fn with_streams<const N: usize>(self) -> (Self, [Stream; N]) {
        let streams = self.streams();
        (self, streams)
    }

    pub(crate) fn allocate(&self, bytes: u64, stream: &Stream) -> Allocation {
        self.allocator.allocate(bytes, stream).expect("there is room")
    }

    /// Allocates by address.
    pub(crate) fn allocate_raw(&self, bytes: u64, stream: &Stream) -> u64 {
        // SAFETY: 1. 2. the stream is this allocator's own, and lives as long as it.
        unsafe { self.allocator.allocate_raw(bytes, stream.handle()) }.expect("there is room")
    }

    /// Allocates memory that is freed when dropped, with an owner or by address.
    pub(crate) fn allocate_by(&self, interface: Interface, bytes: u64, stream: &Stream) -> TestMemory<'_> {
        match interface {
            Interface::Owned => TestMemory::Owned(self.allocate(bytes, stream)),
            Interface::Raw => TestMemory::Raw(self, self.allocate_raw(bytes, stream)),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        self.allocator.stats()
    }

    /// Stops `stream` until the hold is released.
    pub(crate) fn hold(&self, stream: &Stream) -> Hold {
        self.device.hold(stream.handle()).expect("the stream is live")
    }

    /// Frees `memory` while held work of `side` uses it.
    pub(crate) fn free_in_use(&self, memory: Allocation, side: &Stream) -> Hold {
        let hold = self.hold(side);
        memory.record_stream(side);
        drop(memory);
        hold
    }

    /// Fills `memory` with `byte`, in stream order.
    pub(crate) fn fill(&self, memory: &impl Range, byte: u8, stream: &Stream) {
        let transfer = self.allocator.device().transfer().expect("the host device copies");
        let (at, bytes) = memory.range();
        // SAFETY: 1. the stream is live. 3. the memory stays mapped: its segment is not given back before the
        // device is idle.
        unsafe { transfer.fill(at, byte, bytes, stream.handle()) }.expect("a fill is queued");
    }

    /// The byte that fills `memory` when all work in `stream` is done; `None` if bytes differ.
    pub(crate) fn content(&self, memory: &impl Range, stream: &Stream) -> Option<u8> {
        let transfer = self.allocator.device().transfer().expect("the host device copies");
        let (from, bytes) = memory.range();
        let length = usize::try_from(bytes).expect("it fits the host");
        let mut read = vec![0; length];
        // SAFETY: 1. the stream is live. 3. the memory is allocated. 4. `read` is not touched before the stream
        // has been waited for.
        unsafe { transfer.download(read.as_mut_ptr(), from, length, stream.handle()) }.expect("a download is queued");
        stream.synchronize().expect("the stream runs dry");
        let first = read[0];
        (read == vec![first; length]).then_some(first)
    }

    /// A stream, another stream that is held, memory of the first stream that the other is to fill, and the hold.
    pub(crate) fn used_memory(&self, bytes: u64) -> (Stream, Stream, Allocation, Hold) {
        let [stream, side] = self.streams();
        let (memory, hold) = (self.allocate(bytes, &stream), self.hold(&side));
        self.fill(&memory, 1, &side);
        (stream, side, memory, hold)
    }

    /// Makes later work in `stream` wait for what is queued in `other` now.
    pub(crate) fn follow(&self, stream: &Stream, other: &Stream) {
        let event = OwnedEvent::create(&self.device).expect("the device makes events");
        // SAFETY: 1. both live.
        unsafe { self.device.record(event.get(), other.handle()) }.expect("a point is marked");
        // SAFETY: 1. both live.
        unsafe { self.device.stream_wait(stream.handle(), event.get()) }.expect("a wait is queued");
    }

    /// Whether a stream takes part in a capture that nothing has broken.
    pub(crate) fn is_captured(&self, stream: &Stream) -> bool {
        let capture = self.device.capture().expect("the host device captures");
        // SAFETY: 1. the stream lives.
        let status = unsafe { capture.capture_status(stream.handle()) };
        matches!(status, Ok(CaptureStatus::Active(_)))
    }

    /// Copies all of `from` to `to`, in stream order.
    pub(crate) fn copy(&self, to: &impl Range, from: &impl Range, stream: &Stream) {
        let transfer = self.device.transfer().expect("the host device copies");
        let ((to, _), (from, bytes)) = (to.range(), from.range());
        // SAFETY: 1. the stream is live. 3. both stay mapped until the stream has come so far.
        unsafe { transfer.copy(to, from, bytes, stream.handle()) }.expect("a copy is queued");
    }

    /// Begins to capture a stream, and tells the allocator nothing.
    pub(crate) fn begin_unannounced(&self, stream: &Stream, mode: CaptureMode) {
        let capture = self.device.capture().expect("the host device captures");
        // SAFETY: 1. the stream lives.
        unsafe { capture.begin_capture(stream.handle(), mode) }.expect("it begins");
    }

    /// Ends such a capture, which must be whole, and destroys its graph.
    pub(crate) fn end_unannounced(&self, stream: &Stream) {
        let capture = self.device.capture().expect("the host device captures");
        // SAFETY: 1. the stream lives.
        let graph = unsafe { capture.end_capture(stream.handle()) }.expect("it is whole");
        // SAFETY: 1. it was captured just now.
        unsafe { capture.destroy_graph(graph) }.expect("it is known");
    }

    /// A new pool for graphs, and a capture of `stream` into it.
    pub(crate) fn capture(&self, stream: &Stream) -> (Pool, Capture) {
        let pool = self.allocator.create_capture_pool();
        let capture = begin_capture(&pool, stream);
        (pool, capture)
    }

    /// A graph that fills 1 MiB of `pool` with `byte`; the memory stays allocated.
    pub(crate) fn filling(&self, pool: &Pool, stream: &Stream, byte: u8) -> (Graph, Allocation) {
        let capture = begin_capture(pool, stream);
        let memory = self.allocate(MIB, stream);
        self.fill(&memory, byte, stream);
        (capture.end().expect("it is whole"), memory)
    }

    /// Driver calls that `act` makes, of any kind.
    pub(crate) fn calls_during(&self, act: impl FnOnce()) -> u64 {
        let before = self.device.total_calls();
        act();
        self.device.total_calls() - before
    }

    /// Driver calls of one kind that `act` makes.
    pub(crate) fn calls_of(&self, call: Call, act: impl FnOnce()) -> u64 {
        let before = self.device.calls(call);
        act();
        self.device.calls(call) - before
    }

    /// Checks every structure, and that the statistics agree with each other and with the device.
    pub(crate) fn assert_sound(&self) {
        assert_sound(&self.allocator);
        let reserved = self.stats().reserved_bytes.all.current;
        assert_eq!(self.device.physical_bytes(), reserved);
    }

    /// The same as [`assert_sound`](Self::assert_sound) for a device whose memory is all elastic.
    pub(crate) fn assert_elastic_sound(&self) {
        assert_consistent(&self.allocator);
        let stats = self.stats();
        assert_eq!(stats.segment.all.allocated, 0, "X9: chunks are no segments");
        let held = stats.num_device_alloc - stats.num_device_free;
        assert_eq!(self.device.live().backings as u64, held);
        assert_eq!(self.device.physical_bytes(), stats.reserved_bytes.all.current);
        let mapped = self.allocator.elastic_segments();
        let mapped: u64 = mapped.iter().map(|segment| segment.mapped).sum();
        assert_eq!(mapped, stats.reserved_bytes.all.current);
    }

    /// Drops the allocator, and checks that the device has everything back and that no driver call was wrong.
    pub(crate) fn assert_returns_everything(self) {
        let Self { device, checked, allocator } = self;
        allocator.check().expect("every invariant holds");
        drop(allocator);
        assert_eq!(device.live(), Live::default());
        assert_eq!(device.physical_bytes(), 0);
        let misuses = checked.map_or_else(Vec::new, |checked| checked.misuses());
        assert!(misuses.is_empty(), "{misuses:?}");
    }

    /// Drops what has memory or streams of the allocator, and does the same.
    pub(crate) fn assert_returns_everything_after<T>(self, last: T) {
        drop(last);
        self.assert_returns_everything();
    }
}

/// The first device made like `host`. It faults where memory is freed while work uses it, so a missing wait shows.
pub(crate) fn device(host: HostConfig) -> HostDevice {
    let backend = HostBackend::new(host.free_without_waiting()).expect("such a device can be made");
    backend.device(Ordinal(0)).expect("there is always a first device")
}

/// A device as an allocator takes it.
pub(crate) fn any(device: HostDevice) -> AnyDevice {
    Arc::new(device)
}

/// Releases a stream that is held, and waits for its work.
pub(crate) fn let_pass(hold: Hold, stream: &Stream) {
    hold.release();
    stream.synchronize().expect("its work has all its memory");
}

/// Begins to capture `stream` in the strictest mode, with memory of `pool`.
pub(crate) fn begin_capture(pool: &Pool, stream: &Stream) -> Capture {
    pool.begin_capture(stream, CaptureMode::Global).expect("the capture begins")
}

/// Launches a graph in `stream`.
pub(crate) fn launch(graph: &Graph, stream: &Stream) {
    // SAFETY: 1. it names memory that the test keeps. 2. graphs run in turn. 3. the stream is the allocator's.
    unsafe { graph.launch(stream) }.expect("the graph is queued");
}

/// Runs `act` while its `nth` driver call fails. Returns its result, and whether there were that many calls.
pub(crate) fn fail_call<T>(device: &HostDevice, nth: u64, kind: ErrorKind, act: impl FnOnce() -> T) -> (T, bool) {
    let before = device.total_calls();
    device.fail_nth_call(nth, kind);
    let done = act();
    device.clear_failures();
    (done, device.total_calls() - before >= nth)
}

/// Parses a configuration. Segments are direct unless it says otherwise: most behaviours are those of direct segments.
pub(crate) fn config(text: &str) -> Config {
    let mut config = Config::builder().expandable_segments(false).build().expect("direct segments are allowed");
    config.update(text).expect("the configuration is right");
    config
}

/// Checks every structure of an allocator, and that its statistics agree with each other.
pub(crate) fn assert_sound(allocator: &Allocator) {
    assert_consistent(allocator);
    let stats = allocator.stats();
    let held = stats.num_device_alloc - stats.num_device_free;
    assert_eq!(held, stats.segment.all.current, "segments are not what the device gave and got");
}

/// The same for every kind of segment.
pub(crate) fn assert_consistent(allocator: &Allocator) {
    allocator.check().expect("every invariant holds");
    let stats = allocator.stats();
    for (name, array) in stats.arrays() {
        let kinds = [&array.small_pool, &array.large_pool];
        let sum = kinds.iter().map(|stat| stat.current).sum::<u64>();
        assert_eq!(array.all.current, sum, "{name} is not the sum of its kinds");
        for stat in [&array.all, &array.small_pool, &array.large_pool] {
            assert!(stat.peak >= stat.current, "the peak of {name} is too low");
            let left = stat.allocated.checked_sub(stat.freed);
            assert_eq!(left, Some(stat.current), "{name} does not add up");
        }
    }
    let now = |name: &str| {
        let found = stats.arrays().into_iter().find(|(known, _)| *known == name);
        found.map_or(0, |(_, array)| array.all.current)
    };
    assert!(now("allocation") <= now("active"));
    assert!(now("requested_bytes") <= now("active_bytes"));
    let in_split = now("active_bytes") + now("inactive_split_bytes");
    assert!(in_split <= now("reserved_bytes"), "more is used than is held");
}
