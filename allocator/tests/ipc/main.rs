//! The promises of memory that several processes use.
//!
//! The second process is this program again: [`second`] says how.

mod bytes;
mod contents;
mod failures;
mod forgeries;
mod lifetimes;
mod peers;
mod pidfd;
mod readers;
mod refusals;
mod relay;
mod second;
#[path = "../behaviour/fixture/threads.rs"]
#[expect(dead_code, reason = "part of it serves other tests")]
mod threads;
mod vendors;

use std::sync::Arc;

use cachette::hal::{AnyDevice, Ordinal};
use cachette::{Allocation, Allocator, SharedMemory, Stream};
use cachette_hal_host::{HostBackend, HostConfig, HostDevice, Live};

const MIB: u64 = 1 << 20;

/// Direct segments.
const DIRECT: &str = "expandable_segments:False";
/// Elastic segments, in chunks of 2 MiB.
const ELASTIC: &str = "expandable_segments:True,elastic_setting:compact";

/// An allocator on a host device.
struct TestAllocator {
    device: HostDevice,
    allocator: Allocator,
    stream: Stream,
}

impl TestAllocator {
    /// A device of 1 GiB, and an allocator configured by `text`.
    fn new(text: &str) -> Self {
        Self::on(HostConfig::default(), text)
    }

    fn on(host: HostConfig, text: &str) -> Self {
        let backend = HostBackend::new(host).expect("such a device can be made");
        let device = backend.device(Ordinal(0)).expect("there is always a first device");
        let config = text.parse().expect("the configuration is right");
        let allocator = Allocator::with_config(Arc::new(device.clone()) as AnyDevice, &config);
        let stream = allocator.create_stream().expect("the device makes streams");
        Self { device, allocator, stream }
    }

    fn allocate(&self, bytes: u64) -> Allocation {
        let memory = self.allocator.allocate(bytes, &self.stream);
        memory.expect("there is room")
    }

    /// Drops the allocator, and checks that the device has everything back.
    fn assert_returns_everything(self) {
        let Self { device, allocator, stream } = self;
        allocator.check().expect("every invariant holds");
        drop((stream, allocator));
        assert_eq!(device.live(), Live::default());
        assert_eq!(device.physical_bytes(), 0);
    }
}

/// An allocator, and memory that it shares, filled with the pattern of 1.
fn sharing(config: &str, bytes: u64) -> (TestAllocator, Allocation, SharedMemory) {
    let test = TestAllocator::new(config);
    let memory = test.allocate(bytes);
    bytes::put(&test.device, memory.address(), memory.bytes(), 1);
    let shared = test.allocator.share(&memory).expect("it can be shared");
    (test, memory, shared)
}

/// Waits until a condition holds, for a minute at most.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("after a minute still not: {what}");
}
