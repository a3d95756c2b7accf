//! Mappings: aliases, exactness, and memory that goes with its last name.

use std::os::fd::AsFd;

use cachette_hal::{Access, Backing, DevicePtr, ErrorKind, Ordinal, Result, Sharing, StreamRef, VirtualMemory};

use crate::rig::{Rig, rig, rigs, threaded};

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

/// A device with a reservation of `count` chunks, and one backing.
fn chunks(count: u64) -> (Rig, u64, DevicePtr, Backing) {
    let device = rig(threaded());
    let chunk = device.granularity().minimum;
    let at = device.reserve(count * chunk, None).unwrap();
    let backing = device.create_backing(chunk, Sharing::Private, false).unwrap();
    (device, chunk, at, backing)
}

#[test]
fn two_mappings_of_a_backing_are_the_same_bytes() {
    let (device, chunk, at, backing) = chunks(2);
    device.map(at, &backing).unwrap();
    device.map(at.add(chunk), &backing).unwrap();
    device.grant(at, 2 * chunk).unwrap();
    device.fill(at.add(5), 7, 3, StreamRef::DEFAULT).unwrap();
    assert_eq!(device.read(at.add(chunk + 4), 5), [0, 7, 7, 7, 0]);
    device.unmap(at, chunk).unwrap();
    assert_eq!(device.read(at.add(chunk + 4), 5), [0, 7, 7, 7, 0]);
}

#[test]
fn memory_goes_with_the_last_of_handle_and_mappings() {
    let (device, chunk, at, backing) = chunks(2);
    device.map(at, &backing).unwrap();
    device.map(at.add(chunk), &backing).unwrap();
    device.destroy_backing(backing).unwrap();
    device.unmap(at, chunk).unwrap();
    assert_eq!(device.physical_bytes(), chunk);
    device.unmap(at.add(chunk), chunk).unwrap();
    assert_eq!(device.physical_bytes(), 0);
}

#[test]
fn mappings_are_made_and_undone_whole() {
    let (device, chunk, at, backing) = chunks(3);
    device.map(at, &backing).unwrap();
    device.map(at.add(chunk), &backing).unwrap();
    let (invalid, end) = (ErrorKind::InvalidValue, at.add(3 * chunk));
    assert_eq!(kind(device.map(at, &backing)), invalid, "mapped already");
    assert_eq!(kind(device.map(end, &backing)), invalid, "not reserved");
    assert_eq!(kind(device.map(end.add(4096), &backing)), invalid, "not aligned");
    assert_eq!(kind(device.unmap(at, 2 * chunk)), invalid, "two mappings");
    assert_eq!(kind(device.unmap(at, chunk / 2)), invalid, "half a mapping");
    let nothing = device.unmap(at.add(2 * chunk), chunk);
    assert_eq!(kind(nothing), invalid, "nothing there");
    device.unmap(at, chunk).unwrap();
    device.unmap(at.add(chunk), chunk).unwrap();
}

#[test]
fn rights_are_given_to_whole_mappings_and_known_devices() {
    let (device, chunk, at, backing) = chunks(3);
    device.map(at, &backing).unwrap();
    device.map(at.add(chunk), &backing).unwrap();
    let invalid = ErrorKind::InvalidValue;
    assert_eq!(kind(device.grant(at, chunk / 2)), invalid, "half a mapping");
    assert_eq!(kind(device.grant(at, 3 * chunk)), invalid, "a gap");
    assert_eq!(kind(device.set_access(at, chunk, &[])), invalid, "for no device");
    let unknown = device.set_access(at, chunk, &[Access::Read(Ordinal(1))]);
    assert_eq!(kind(unknown), ErrorKind::NoSuchDevice);
    device.grant(at, 2 * chunk).unwrap();
}

#[test]
fn reservations_are_released_whole_and_empty() {
    let (device, chunk, at, backing) = chunks(3);
    let invalid = ErrorKind::InvalidValue;
    let odd = chunk + 4096;
    assert_eq!(kind(device.reserve(odd, None)), invalid, "no multiple");
    let backed = device.create_backing(odd, Sharing::Private, false);
    assert_eq!(kind(backed), invalid, "no multiple");
    device.map(at, &backing).unwrap();
    let mapped = device.release(at, 3 * chunk);
    assert_eq!(kind(mapped), invalid, "something mapped");
    device.unmap(at, chunk).unwrap();
    assert_eq!(kind(device.release(at, chunk)), invalid, "a part");
    device.release(at, 3 * chunk).unwrap();
    let twice = device.release(at, 3 * chunk);
    assert_eq!(kind(twice), invalid, "released already");
}

#[test]
fn a_device_does_not_know_anothers_backing() {
    let [device, other] = rigs(threaded().devices(2));
    let chunk = device.granularity().minimum;
    let at = other.reserve(chunk, None).unwrap();
    let backing = device.create_backing(chunk, Sharing::Private, false).unwrap();
    assert_eq!(kind(other.map(at, &backing)), ErrorKind::InvalidHandle);
    assert_eq!(kind(device.map(at, &backing)), ErrorKind::InvalidValue);
}

#[test]
fn addresses_wished_for_are_given_if_they_are_free() {
    let (device, chunk, at, _) = chunks(4);
    device.release(at, 4 * chunk).unwrap();
    assert_eq!(device.reserve(4 * chunk, Some(at)), Ok(at));
    assert_ne!(device.reserve(4 * chunk, Some(at)), Ok(at));
}

#[test]
fn reservations_are_aligned_to_what_is_recommended_and_mapped_by_what_is_least() {
    let device = rig(threaded().granularity(4096, 16 << 20));
    for _ in 0..4 {
        let at = device.reserve(8192, None).unwrap();
        assert_eq!(at.address() % (16 << 20), 0);
        let backing = device.create_backing(4096, Sharing::Private, false).unwrap();
        device.map(at.add(4096), &backing).unwrap();
        device.grant(at.add(4096), 4096).unwrap();
        device.fill(at.add(4096), 2, 4096, StreamRef::DEFAULT).unwrap();
        assert_eq!(device.read(at.add(8184), 8), [2; 8]);
    }
}

#[test]
fn a_descriptor_names_the_same_bytes_and_is_not_paid_for_twice() {
    let (device, chunk, at, _private) = chunks(2);
    let before = device.physical_bytes();
    let shared = device.create_backing(chunk, Sharing::FileDescriptor, false).unwrap();
    // SAFETY: 1. created above.
    let descriptor = unsafe { device.export_backing(&shared) }.unwrap();
    let imported = device.import_backing(descriptor.as_fd(), chunk).unwrap();
    assert_eq!(device.physical_bytes(), before + chunk);
    device.map(at, &shared).unwrap();
    device.map(at.add(chunk), &imported).unwrap();
    device.grant(at, 2 * chunk).unwrap();
    device.fill(at, 6, chunk, StreamRef::DEFAULT).unwrap();
    assert_eq!(device.read(at.add(2 * chunk - 8), 8), [6; 8]);
}

#[test]
fn only_descriptors_of_shared_backing_are_made_and_taken() {
    let (device, chunk, _, private) = chunks(1);
    // SAFETY: 1. created above.
    let exported = unsafe { device.export_backing(&private) };
    assert_eq!(kind(exported), ErrorKind::InvalidValue);
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert_eq!(kind(device.import_backing(file.as_fd(), chunk)), ErrorKind::InvalidValue);
    let shared = device.create_backing(chunk, Sharing::FileDescriptor, false).unwrap();
    // SAFETY: 1. created above.
    let descriptor = unsafe { device.export_backing(&shared) }.unwrap();
    let wrong = device.import_backing(descriptor.as_fd(), 2 * chunk);
    assert_eq!(kind(wrong), ErrorKind::InvalidValue);
}
