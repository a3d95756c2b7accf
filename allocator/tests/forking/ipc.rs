//! A child that drops its copies of exported or imported memory changes nothing in the parent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use cachette::hal::AnyDevice;
use cachette::{Allocation, Allocator, ImportedMemory, SharedMemory, Stream};
use cachette_hal_host::{HostDevice, Live};

use super::child::{Stop, in_child};
use super::held::{config, device};

/// Segments of the device's own, and chunks.
const CONFIGS: [&str; 2] = ["expandable_segments:False", "expandable_segments:True"];
const BYTES: u64 = 4 << 20;

/// A process that shares.
struct Exporter {
    device: HostDevice,
    allocator: Allocator,
    stream: Stream,
    memory: Allocation,
    shared: SharedMemory,
}

impl Exporter {
    fn new(text: &str) -> Self {
        let device = device();
        let allocator = Allocator::with_config(Arc::new(device.clone()) as AnyDevice, &config(text));
        let stream = allocator.create_stream().unwrap();
        let memory = allocator.allocate(BYTES, &stream).unwrap();
        let shared = allocator.share(&memory).unwrap();
        Self { device, allocator, stream, memory, shared }
    }

    fn assert_returns_everything(self) {
        let device = self.device.clone();
        self.allocator.check().unwrap();
        drop((self.shared, self.memory, self.stream, self.allocator));
        assert_eq!(device.live(), Live::default());
        assert_eq!(device.physical_bytes(), 0);
    }
}

/// Drops something of a parent's: no driver call is made.
fn drop_in_silence<T>(device: &HostDevice, what: T) {
    let calls = device.total_calls();
    drop(what);
    assert_eq!(device.total_calls(), calls, "the driver was called");
}

#[test]
fn what_a_parent_shares_is_not_withdrawn_by_its_child() {
    for text in CONFIGS {
        let mut exporter = Some(Exporter::new(text));
        let handle = exporter.as_ref().map(|it| it.shared.handle()).unwrap();
        in_child(|| {
            let Exporter { device, allocator, stream, memory, shared } = exporter.take().unwrap();
            assert_eq!(shared.handle(), handle, "it is the parent's");
            drop_in_silence(&device, shared);
            drop_in_silence(&device, (memory, stream, allocator));
        });
        let exporter = exporter.unwrap();
        let again = exporter.allocator.open_shared(&handle).unwrap();
        assert_eq!((again.bytes(), exporter.shared.readers()), (BYTES, 1));
        drop(again);
        exporter.assert_returns_everything();
    }
}

/// The child opens its parent's memory, and has a child itself, which drops it.
#[test]
fn what_a_parent_has_opened_is_not_closed_by_its_child() {
    for text in CONFIGS {
        let exporter = Exporter::new(text);
        let handle = exporter.shared.handle();
        in_child(|| {
            let device = device();
            let allocator = Allocator::with_config(Arc::new(device.clone()) as AnyDevice, &config(text));
            let opened = allocator.open_shared(&handle).unwrap();
            let live = device.live();
            let mut held: Option<ImportedMemory<_>> = Some(opened);
            in_child(|| {
                let opened = held.take().unwrap();
                assert_eq!(opened.bytes(), BYTES);
                let clone = opened.clone();
                drop_in_silence(&device, (opened, clone));
            });
            let opened = held.unwrap();
            assert!(opened.is_kept(), "{text}");
            assert_eq!(device.live(), live);
            drop(opened);
            drop(allocator);
            assert_eq!(device.live(), Live::default());
        });
        // The exporter's own thread closes the connection, soon or late.
        for _ in 0..300_000 {
            if exporter.shared.readers() == 0 {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(exporter.shared.readers(), 0, "{text}");
        exporter.assert_returns_everything();
    }
}

/// A fork comes at any moment, also while another thread or the one that answers has a lock.
#[test]
fn a_child_of_a_busy_parent_drops_shares_without_waiting() {
    let mut exporter = Some(Exporter::new(CONFIGS[1]));
    let done = AtomicBool::new(false);
    let allocator = exporter.as_ref().map(|it| it.allocator.clone()).unwrap();
    let handle = exporter.as_ref().map(|it| it.shared.handle()).unwrap();
    let address = exporter.as_ref().map(|it| it.memory.address()).unwrap();
    thread::scope(|scope| {
        let _stop = Stop(&done);
        scope.spawn(|| {
            while !done.load(Relaxed) {
                drop(allocator.share_raw(address).unwrap());
                drop(allocator.open_shared(&handle).unwrap());
            }
        });
        for _ in 0..40 {
            in_child(|| {
                let Exporter { shared, memory, .. } = exporter.take().unwrap();
                drop((shared, memory));
            });
        }
    });
    drop(allocator);
    exporter.unwrap().assert_returns_everything();
}
