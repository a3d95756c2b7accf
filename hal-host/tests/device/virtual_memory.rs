//! Mappings: aliases, exactness, and memory that goes with its last name.

use std::os::fd::AsFd;

use cachette_hal::{Backing, DevicePtr, ErrorKind, Result, Sharing, StreamRef, VirtualMemory};

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
fn mappings_and_reservations_are_used_whole() {
    let (device, chunk, at, backing) = chunks(3);
    device.map(at, &backing).unwrap();
    device.map(at.add(chunk), &backing).unwrap();
    for (refused, why) in [
        (device.map(at.add(3 * chunk + 4096), &backing), "a map that is not aligned"),
        (device.unmap(at, 2 * chunk), "an unmap of two mappings"),
        (device.grant(at, chunk / 2), "rights to half a mapping"),
        (device.grant(at, 3 * chunk), "rights to a gap"),
        (device.set_access(at, chunk, &[]), "rights for no device"),
        (device.reserve(chunk + 4096, None).map(drop), "an odd reservation"),
        (device.release(at, chunk), "the release of a part"),
    ] {
        assert_eq!(kind(refused), ErrorKind::InvalidValue, "{why}");
    }
    device.grant(at, 2 * chunk).unwrap();
    device.unmap(at, chunk).unwrap();
    device.unmap(at.add(chunk), chunk).unwrap();
    device.release(at, 3 * chunk).unwrap();
    assert_eq!(kind(device.release(at, 3 * chunk)), ErrorKind::InvalidValue, "a second release");
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
fn only_descriptors_of_shared_backing_are_made_and_taken() {
    let (device, chunk, _, private) = chunks(1);
    // SAFETY: 1. created above.
    let exported = unsafe { device.export_backing(&private) };
    assert_eq!(kind(exported), ErrorKind::InvalidValue);
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert_eq!(kind(device.import_backing(file.as_fd(), chunk)), ErrorKind::InvalidValue);
    let before = device.physical_bytes();
    let shared = device.create_backing(chunk, Sharing::FileDescriptor, false).unwrap();
    // SAFETY: 1. created above.
    let descriptor = unsafe { device.export_backing(&shared) }.unwrap();
    let _imported = device.import_backing(descriptor.as_fd(), chunk).unwrap();
    assert_eq!(device.physical_bytes(), before + chunk, "paid for once");
    let wrong = device.import_backing(descriptor.as_fd(), 2 * chunk);
    assert_eq!(kind(wrong), ErrorKind::InvalidValue);
}
