//! Leaks, reuse of numbers, failures of the driver and races.

use std::sync::Arc;
use std::thread;

use cachette_hal::{Backing, Device, DevicePtr, Event, Sharing, StreamRef, Transfer, VirtualMemory};
use cachette_hal_testing::checked::{Misuse, MisuseKind};

use super::{subject, wrong};
use crate::fake::{STRIDE, call};

#[test]
fn a_report_reads_as_one_sentence() {
    let device = subject();
    let worker = thread::Builder::new().name("worker".into());
    thread::scope(|scope| {
        let run = || {
            let ptr = device.allocate(4096).unwrap();
            call!(device.free(ptr)).unwrap();
            call!(device.free(ptr)).unwrap_err();
        };
        worker.spawn_scoped(scope, run).unwrap();
    });
    assert_eq!(
        device.misuses().iter().map(Misuse::to_string).collect::<Vec<_>>(),
        ["free(0x100000): this memory was already freed; \
            it came from allocate (call 1, thread worker); \
            it was freed by free (call 2, thread worker)"]
    );
}

#[test]
fn what_is_never_given_back_is_a_leak() {
    let device = subject();
    let ptr = device.allocate(4096).unwrap();
    let event = device.create_event().unwrap();
    let texts: Vec<String> = device.leaks().iter().map(Misuse::to_string).collect();
    assert_eq!(texts.len(), 2);
    let memory = "free(0x100000, 4096 bytes): this memory was never freed; it came from allocate";
    assert!(texts[0].starts_with(memory), "{}", texts[0]);
    let handle = "destroy_event(0x200000): this event was never destroyed";
    assert!(texts[1].starts_with(handle), "{}", texts[1]);

    call!(device.destroy_event(event)).unwrap();
    wrong!(device.free(ptr.add(1)) => Interior);
    let kinds: Vec<MisuseKind> = device.finish().unwrap_err().iter().map(|m| m.what).collect();
    assert_eq!(kinds, [MisuseKind::Interior, MisuseKind::Leaked]);
}

#[test]
fn a_number_may_come_back_after_its_end() {
    let device = subject();
    let ptr = device.allocate(4096).unwrap();
    call!(device.free(ptr)).unwrap();
    device.device().reuse(ptr.address());
    assert_eq!(device.allocate(64), Ok(ptr));
    call!(device.fill(ptr, 0, 64, StreamRef::DEFAULT)).unwrap();
    call!(device.free(ptr)).unwrap();
    wrong!(device.free(ptr) => EndedTwice, "from allocate (call 3", "freed by free (call 4");
}

#[test]
fn a_call_that_fails_changes_nothing() {
    let device = subject();
    device.device().fail_next();
    device.allocate(4096).unwrap_err();
    device.device().fail_next();
    device.create_stream().unwrap_err();
    assert!(device.leaks().is_empty());

    let ptr = device.allocate(4096).unwrap();
    device.device().fail_next();
    call!(device.free(ptr)).unwrap_err();
    assert_eq!(device.leaks().len(), 1);
    call!(device.fill(ptr, 0, 16, StreamRef::DEFAULT)).unwrap();
    call!(device.free(ptr)).unwrap();
    assert!(device.finish().is_ok());
}

#[test]
fn what_is_being_freed_cannot_be_freed_or_used() {
    let device = Arc::new(subject());
    let ptr = device.allocate(4096).unwrap();
    let other = Arc::clone(&device);
    device.device().during_next(move || {
        let other = &*other;
        wrong!(other.free(ptr) => EndedTwice, "already freed", "it was freed by free (call 2");
        wrong!(other.fill(ptr, 0, 16, StreamRef::DEFAULT) => OutOfBounds, "not inside live memory");
    });
    call!(device.free(ptr)).unwrap();
    assert_eq!(device.misuses().len(), 2);
    assert!(device.leaks().is_empty());
}

#[test]
fn the_driver_may_reuse_an_address_before_its_free_returns() {
    for shift in [0, 512] {
        let device = Arc::new(subject());
        let ptr = device.allocate(4096).unwrap();
        let younger = DevicePtr::new(ptr.address() - shift).unwrap();
        let other = Arc::clone(&device);
        device.device().during_next(move || {
            other.device().reuse(younger.address());
            assert_eq!(other.allocate(8192), Ok(younger));
            call!(other.fill(younger, 0, 8192, StreamRef::DEFAULT)).unwrap();
            call!(other.fill(ptr.add(16), 0, 64, StreamRef::DEFAULT)).unwrap();
        });
        call!(device.free(ptr)).unwrap();
        assert_eq!(device.leaks().len(), 1);
        call!(device.free(younger)).unwrap();
        assert!(device.misuses().is_empty());
    }
}

#[test]
fn a_backing_that_could_not_be_destroyed_stays_beside_a_new_one() {
    let device = Arc::new(subject());
    // Handles are no addresses: those of two backings may differ by less than the backings have bytes.
    let bytes = 4 * STRIDE;
    let backing = device.create_backing(bytes, Sharing::Private, false).unwrap();
    let again = Backing::from_raw(backing.raw(), bytes);
    let other = Arc::clone(&device);
    device.device().during_next(move || {
        let made = other.create_backing(bytes, Sharing::Private, false).unwrap();
        call!(other.destroy_backing(made)).unwrap();
    });
    device.device().fail_next();
    call!(device.destroy_backing(backing)).unwrap_err();
    call!(device.destroy_backing(again)).unwrap();
    assert!(device.misuses().is_empty(), "{:?}", device.misuses());
    assert!(device.leaks().is_empty());
}

#[test]
fn only_so_many_ends_are_remembered() {
    let device = subject();
    let first = device.create_event().unwrap();
    let again = first.raw();
    call!(device.destroy_event(first)).unwrap();
    wrong!(device.destroy_event(Event::from_raw(again)) => EndedTwice);
    for _ in 0..4096 {
        let event = device.create_event().unwrap();
        call!(device.destroy_event(event)).unwrap();
    }
    wrong!(device.destroy_event(Event::from_raw(again)) => Foreign);
}
