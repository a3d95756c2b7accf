//! The error of a failed request.

use cachette::hal::{Call, ErrorKind};
use cachette::{Error, OomHint, OutOfMemory};
use cachette_hal_host::HostConfig;

use crate::fixture::{GIB, KIB, MIB, TestAllocator, any, config};

/// The report of a request that must fail.
fn report(test: &TestAllocator, bytes: u64) -> OutOfMemory {
    let stream = test.stream();
    match test.allocator.allocate(bytes, &stream) {
        Err(Error::OutOfMemory(report)) => *report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn m18_m19_the_report_carries_the_figures_of_the_moment() {
    let (test, [stream, side]) = TestAllocator::of(64 * MIB, "memory_limit:60M").with_streams();
    let live = test.allocate(11 * MIB, &stream);
    let waiting = test.allocate(14 * MIB, &stream);
    let part = test.allocate(3 * MIB, &stream);
    let hold = test.free_in_use(waiting, &side);
    test.allocator.set_config(&config("never_block:True"));
    let report = report(&test, 33 * MIB);
    hold.release();
    assert_eq!(report.device.0, 0);
    assert_eq!((report.requested, report.segment), (33 * MIB, 34 * MIB));
    assert_eq!((report.total, report.free), (Some(64 * MIB), Some(18 * MIB)));
    assert_eq!(report.limit, Some(60 * MIB));
    assert_eq!(report.allocated, (12 + 3) * MIB);
    assert_eq!(report.reserved, (12 + 14 + 20) * MIB);
    assert_eq!(report.pending, 14 * MIB);
    assert_eq!(report.unallocated(), 17 * MIB);
    assert_eq!(report.largest_free, 17 * MIB);
    assert!(report.never_block && !report.rejected);
    let message = report.to_string();
    for figure in [
        "33.00 MiB",
        "34.00 MiB",
        "64.00 MiB",
        "18.00 MiB",
        "60.00 MiB",
        "46.00 MiB",
        "15.00 MiB",
        "14.00 MiB",
        "17.00 MiB",
        "device 0",
    ] {
        assert!(message.contains(figure), "{figure} is missing in: {message}");
    }
    drop((live, part));
}

#[test]
fn m19_the_report_names_the_device() {
    let backend = cachette_hal_host::HostBackend::new(HostConfig::default().devices(3).phantom(true)).unwrap();
    let device = backend.device(cachette::hal::Ordinal(2)).unwrap();
    let allocator = cachette::Allocator::new(any(device));
    let stream = allocator.create_stream().unwrap();
    let error = allocator.allocate(8 * GIB, &stream).unwrap_err();
    let boxed: Box<dyn std::error::Error + Send + Sync> = Box::new(error);
    let text = boxed.to_string();
    assert!(text.starts_with("out of memory") && text.contains("device 2") && text.contains("8.00 GiB"), "{text}");
}

#[test]
fn m20_figures_are_written_in_the_unit_that_suits_them() {
    let test = TestAllocator::of(MIB, "");
    let message = report(&test, 100).to_string();
    assert!(message.contains("100 bytes"), "{message}");
    assert!(message.contains("1.00 MiB"), "{message}");
    let message = report(&test, 1536 * KIB).to_string();
    assert!(message.contains("1.50 MiB") && message.contains("20.00 MiB"), "{message}");
}

#[test]
fn d11_a_device_that_does_not_say_what_is_free_breaks_nothing() {
    for kind in [ErrorKind::Unsupported, ErrorKind::Other, ErrorKind::Fault] {
        let test = TestAllocator::of(64 * MIB, "");
        test.device.fail_next(Call::MemoryInfo, 1, kind);
        let report = report(&test, 100 * MIB);
        assert_eq!((report.total, report.free, report.elsewhere), (None, None, None));
        assert_eq!(report.hints(), [OomHint::AskForLess], "no process is blamed");
        let message = report.to_string();
        assert!(message.contains("does not say"), "{message}");
        assert!(message.contains("100.00 MiB"), "{message}");
        assert_eq!(test.stats().num_ooms, 1);
        test.assert_sound();
    }
}
