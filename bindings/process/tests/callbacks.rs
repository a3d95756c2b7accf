//! Callbacks, a history and caching hold for every device of the process, also for those that are opened later.
//!
//! The state belongs to the process, so the promises are kept in one test.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use cachette::hal::StreamRef;
use cachette::history::HistoryOptions;
use cachette::snapshot::SnapshotOptions;
use cachette::{Config, Error};
use cachette_hal_host::{HostBackend, HostConfig};
use cachette_process as process;

const MIB: u64 = 1 << 20;

/// Allocates and frees memory of a device.
fn churn(device: u32, bytes: u64) -> Result<(), Error> {
    let allocator = process::allocator(device).expect("there are two");
    // SAFETY: 1. 2. the default stream always exists.
    let address = unsafe { allocator.allocate_raw(bytes, StreamRef::DEFAULT) }?;
    allocator.free_raw(address)
}

#[test]
fn callbacks_a_history_and_caching_hold_for_devices_of_now_and_later() {
    assert!(!process::is_started() && process::caches() && !process::records_history());
    let backend = HostBackend::new(HostConfig::default().devices(2).capacity(64 * MIB)).unwrap();
    process::start_on(Arc::new(backend), &Config::default()).unwrap();
    assert!(process::is_started());
    churn(0, MIB).unwrap();

    // Registered between the two devices.
    let (exhausted, asked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (counts, presses, devices) = (Arc::clone(&exhausted), Arc::clone(&asked), Arc::clone(&seen));
    process::on_out_of_memory(move |_| {
        assert!(process::last_out_of_memory().is_some(), "it is there before others are told");
        counts.fetch_add(1, Relaxed);
    });
    process::on_pressure(move || {
        presses.fetch_add(1, Relaxed);
        false
    });
    process::track(move |device, _| devices.lock().unwrap().push(device));
    process::record_history(Some(HistoryOptions::new()));
    assert!(process::records_history() && process::last_out_of_memory().is_none());

    for device in [0, 1] {
        asked.store(0, Relaxed);
        churn(device, 2 * MIB).unwrap();
        assert!(seen.lock().unwrap().contains(&device), "device {device} is tracked");
        let refused = churn(device, 128 * MIB).unwrap_err();
        assert!(matches!(refused, Error::OutOfMemory(_)), "{refused}");
        assert_eq!(exhausted.load(Relaxed), u64::from(device) + 1);
        assert!(asked.load(Relaxed) > 0, "device {device} asks for memory");
        let history = process::snapshot(Some(device), SnapshotOptions::default());
        assert!(history.traces.iter().any(|trace| !trace.events.is_empty()), "device {device} has a history");
        churn(device, MIB).unwrap();
    }
    let of = |device| process::snapshot(device, SnapshotOptions::default()).segments.len();
    assert_eq!(of(Some(0)) + of(Some(1)), of(None));
    assert!(of(Some(0)) > 0 && of(Some(1)) > 0);
    process::record_history(None);
    assert!(!process::records_history());

    process::set_caching(false).unwrap();
    assert!(!process::caches());
    let reserved = || [0, 1].map(|device| process::find(device).unwrap().reserved_bytes());
    for (device, allocator) in process::opened() {
        allocator.empty_cache().unwrap();
        churn(device, 24 * MIB).unwrap();
    }
    assert_eq!(reserved(), [0; 2], "nothing is kept");
    process::set_caching(true).unwrap();
    assert!(process::caches());
    let none = process::allocator(u32::MAX).unwrap_err();
    assert!(matches!(none, process::Error::NoSuchDevice { .. }), "{none}");
}
