//! One object of each kind that a process can hold of an allocator.

use std::sync::Arc;

use cachette::evict::{Priority, Resident};
use cachette::hal::{AnyDevice, CaptureMode, Ordinal, StreamRef};
use cachette::pool::{Capture, Graph};
use cachette::sleep::Contents;
use cachette::{
    Allocation, Allocator, Buffer, Config, Error, Event, Growable, PinnedAllocation, Pool, PoolOptions, Stream,
};
use cachette_hal_host::{HostBackend, HostConfig, HostDevice, Live};

/// The size of every allocation in bytes.
pub(crate) const BYTES: u64 = 64 << 10;

/// One object of each kind that a process can hold of an allocator.
pub(crate) struct Held {
    pub(crate) device: HostDevice,
    pub(crate) allocator: Allocator,
    pub(crate) stream: Stream,
    pub(crate) memory: Allocation,
    /// Another stream is recorded for it.
    pub(crate) used: Allocation,
    pub(crate) raw: u64,
    /// Memory that bypasses the cache.
    pub(crate) uncached: Allocation,
    pub(crate) uncached_raw: u64,
    pub(crate) buffer: Buffer<u32>,
    pub(crate) event: Event,
    pub(crate) pinned: PinnedAllocation,
    pub(crate) pinned_raw: *mut u8,
    pub(crate) pool: Pool,
    pub(crate) pooled: Allocation,
    /// A guard of the pool.
    pub(crate) resident: Resident,
    /// A pool that sleeps, and its memory.
    pub(crate) asleep: Pool,
    pub(crate) slept: Allocation,
    /// Its first page has memory.
    pub(crate) growable: Growable,
    pub(crate) graph: Graph,
    pub(crate) capture: Capture,
}

// SAFETY: the one pointer is the address of pinned memory, which belongs to no thread.
unsafe impl Sync for Held {}

impl Held {
    /// Creates one object of each kind, on a new device.
    pub(crate) fn new() -> Self {
        Self::try_new().expect("there is room for one of everything")
    }

    fn try_new() -> Result<Self, Error> {
        let device = device();
        let allocator = Allocator::new(Arc::new(device.clone()) as AnyDevice);
        let (stream, side) = (allocator.create_stream()?, allocator.create_stream()?);
        let used = allocator.allocate(BYTES, &stream)?;
        used.record_stream(&side);
        let raw = allocate_raw(&allocator, stream.handle())?;
        allocator.set_config(&config("caching:False"));
        let uncached = allocator.allocate(BYTES, &stream)?;
        let uncached_raw = allocate_raw(&allocator, stream.handle())?;
        allocator.set_config(&Config::default());
        let pool = allocator.create_pool_with(PoolOptions::new().tag("all"))?;
        let pooled = pool.allocate(BYTES, &stream)?;
        let asleep = allocator.create_pool_with(PoolOptions::new().evictable(Priority::default()))?;
        let slept = asleep.allocate(BYTES, &stream)?;
        asleep.sleep(Contents::Keep)?;
        let growable = allocator.allocate_growable(1 << 30, &stream)?;
        growable.commit(0..BYTES)?;
        let graphs = allocator.create_capture_pool();
        let graph = graphs.begin_capture(&side, CaptureMode::Relaxed)?.end()?;
        let capture = graphs.begin_capture(&side, CaptureMode::Relaxed)?;
        let mut buffer = allocator.allocate_buffer(16, &stream)?;
        buffer.write(&[7; 16])?;
        Ok(Self {
            event: stream.record_event()?,
            memory: allocator.allocate(BYTES, &stream)?,
            pinned: allocator.pinned().allocate(4096)?,
            pinned_raw: allocator.pinned().allocate_raw(4096)?,
            device,
            allocator,
            stream,
            used,
            raw,
            uncached,
            uncached_raw,
            buffer,
            resident: pool.make_resident()?,
            pool,
            pooled,
            asleep,
            slept,
            growable,
            graph,
            capture,
        })
    }

    /// Frees everything, and checks that the device has all memory again.
    pub(crate) fn assert_returns_everything(self) {
        self.allocator.check().expect("every invariant holds");
        self.allocator.free_raw(self.raw).unwrap();
        self.allocator.free_raw(self.uncached_raw).unwrap();
        self.allocator.pinned().free_raw(self.pinned_raw).unwrap();
        let device = self.device.clone();
        drop(self);
        assert_eq!(device.live(), Live::default());
        assert_eq!(device.physical_bytes(), 0);
    }
}

/// Creates a new device.
pub(crate) fn device() -> HostDevice {
    let backend = HostBackend::new(HostConfig::default()).expect("such a device can be made");
    backend.device(Ordinal(0)).expect("there is always a first device")
}

pub(crate) fn config(text: &str) -> Config {
    text.parse().expect("the text is a configuration")
}

/// Allocates by address, on a stream of the allocator's own.
pub(crate) fn allocate_raw(allocator: &Allocator, stream: StreamRef) -> Result<u64, Error> {
    // SAFETY: 1. 2. the stream is this allocator's own, and lives as long as it.
    unsafe { allocator.allocate_raw(BYTES, stream) }
}
