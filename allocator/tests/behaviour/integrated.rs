//! Devices that share their memory with the host leave it a reserve.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cachette::evict::Priority;
use cachette::hal::{AnyDevice, Device};
use cachette::{Error, HostFigures, OomHint, OutOfMemory, PoolOptions};
use cachette_hal_host::HostConfig;

use crate::fixture::{ELASTIC, GIB, MIB, Stream, TestAllocator};

/// An allocator on a device of 64 MiB that it shares with the host, and the bytes that programs of the host use.
fn integrated(config: &str) -> (TestAllocator, Stream, Arc<AtomicU64>) {
    let host = Arc::new(AtomicU64::new(0));
    let device = HostConfig::default().capacity(64 * MIB).integrated(Arc::clone(&host));
    let test = TestAllocator::on(device, config);
    let stream = test.stream();
    (test, stream, host)
}

fn refused(test: &TestAllocator, bytes: u64, stream: &Stream) -> OutOfMemory {
    match test.allocator.allocate(bytes, stream) {
        Err(Error::OutOfMemory(report)) => *report,
        other => panic!("{other:?} is no lack of memory"),
    }
}

/// Direct and elastic segments.
const KINDS: [&str; 2] = ["expandable_segments:False,host_reserve:8MiB", "elastic_setting:compact,host_reserve:8MiB"];

#[test]
fn a_request_leaves_the_host_its_reserve_although_the_driver_has_more() {
    for kind in KINDS {
        let (test, stream, host) = integrated(kind);
        let held = test.allocate(24 * MIB, &stream);
        host.store(20 * MIB, Relaxed);
        let report = refused(&test, 16 * MIB, &stream);
        assert_eq!((report.free, report.limit), (Some(40 * MIB), None), "{kind}");
        let HostFigures { available, reserve, .. } = report.host.expect("it shares its memory");
        assert_eq!((available, reserve), (20 * MIB, 8 * MIB));
        assert_eq!(report.hints(), [OomHint::Host], "{report}");
        let shown = report.to_string();
        assert!(shown.contains("; the host has 20.00 MiB available and keeps 8.00 MiB; "), "{shown}");
        assert!(shown.ends_with("end other programs, or lower host_reserve"), "{shown}");
        assert_eq!(test.allocator.largest_available().unwrap(), 12 * MIB);
        // What the host can spare is served, and the cache serves without a look at the host.
        let more = test.allocate(12 * MIB, &stream);
        host.store(GIB, Relaxed);
        drop(held);
        drop(test.allocate(24 * MIB, &stream));
        drop(more);
        assert_eq!(test.allocator.largest_available().unwrap(), test.allocator.largest_free());
    }
}

#[test]
fn idle_memory_of_other_streams_serves_a_request_that_the_host_cannot() {
    for kind in KINDS {
        let (test, stream, host) = integrated(kind);
        let other = test.stream();
        drop(test.allocate(40 * MIB, &other));
        other.synchronize().unwrap();
        host.store(20 * MIB, Relaxed);
        let memory = test.allocate(32 * MIB, &stream);
        assert!(test.allocator.reserved_bytes() <= 44 * MIB, "{kind}");
        test.assert_returns_everything_after((memory, stream, other));
    }
}

#[test]
fn without_a_key_the_host_keeps_a_twentieth_and_a_change_counts_at_once() {
    let (test, stream, _) = integrated("expandable_segments:False");
    let report = refused(&test, 62 * MIB, &stream);
    assert_eq!(report.host.map(|host| host.reserve), Some(64 * MIB / 20));
    let changed = "expandable_segments:False,host_reserve:1MiB".parse().unwrap();
    test.allocator.set_config(&changed);
    drop(test.allocate(62 * MIB, &stream));
}

#[test]
fn an_eviction_that_would_only_move_contents_in_the_same_memory_is_not_made() {
    let (test, stream, _) = integrated(&format!("{ELASTIC},host_reserve:4MiB"));
    let (kept, reloaded) = (PoolOptions::new().evictable(Priority(0)), PoolOptions::new().evictable(Priority(1)));
    let kept = test.allocator.create_pool_with(kept).unwrap();
    let reloaded = test.allocator.create_pool_with(reloaded.reload(|_| Ok::<(), Error>(()))).unwrap();
    let memory = [&kept, &reloaded].map(|pool| pool.allocate(20 * MIB, &stream).unwrap());
    assert_eq!(test.allocator.evictable_bytes(), 20 * MIB, "of the pool that can reload its contents");
    let other = test.allocate(30 * MIB, &stream);
    assert_eq!((kept.is_asleep(), reloaded.is_asleep()), (false, true));
    let report = refused(&test, 20 * MIB, &stream);
    assert!(report.hints().contains(&OomHint::Host));
    drop((other, memory));
}

#[test]
fn a_device_with_memory_of_its_own_asks_nothing_of_the_host() {
    let test = TestAllocator::of(64 * MIB, "host_reserve:1T");
    let stream = test.stream();
    assert_eq!(test.device.host_available(), None);
    drop(test.allocate(48 * MIB, &stream));
    assert_eq!(refused(&test, GIB, &stream).host, None);
    let device: AnyDevice = Arc::new(integrated("").0.device);
    assert_eq!(device.host_available(), Some(64 * MIB), "behind a pointer too");
}
