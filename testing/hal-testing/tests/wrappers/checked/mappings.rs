//! Misuse of reservations and mappings.

use cachette_hal::{Access, Backing, Device, DevicePtr, Ordinal, Sharing, StreamRef, Transfer, VirtualMemory};

use super::{Subject, subject, wrong};
use crate::fake::call;

const CHUNK: u64 = 4096;
const OURS: [Access; 1] = [Access::ReadWrite(Ordinal(0))];

/// A device, a reservation of four chunks, and a backing of one.
fn stage() -> (Subject, DevicePtr, Backing) {
    let device = subject();
    let start = device.reserve(4 * CHUNK, None).expect("fakes have room");
    let backing = device.create_backing(CHUNK, Sharing::Private, false).expect("fakes have room");
    (device, start, backing)
}

/// An address of nothing.
fn nowhere() -> DevicePtr {
    DevicePtr::new(0x1000).expect("it is not zero")
}

#[test]
fn a_map_outside_any_reservation_is_caught() {
    let (device, start, backing) = stage();
    wrong!(device.map(nowhere(), &backing) => NotReserved, "map(0x1000, 4096 bytes): the range lies in no live reservation");
    wrong!(device.map(start.add(3 * CHUNK + 1), &backing) => NotReserved,
        "it meets the reservation at 0x100000 of 16384 bytes", "it came from reserve (call 1");
    call!(device.release(start, 4 * CHUNK)).unwrap();
    wrong!(device.map(start, &backing) => NotReserved, "in no live reservation", "released by release");
}

#[test]
fn a_map_over_a_mapping_is_caught() {
    let (device, start, backing) = stage();
    call!(device.map(start.add(CHUNK), &backing)).unwrap();
    for offset in [CHUNK, CHUNK / 2, CHUNK + CHUNK / 2] {
        wrong!(device.map(start.add(offset), &backing) => AlreadyMapped,
            "the range meets the mapping at 0x101000 of 4096 bytes", "the mapping came from map (call 3");
    }
    call!(device.map(start, &backing)).unwrap();
    call!(device.map(start.add(2 * CHUNK), &backing)).unwrap();
}

#[test]
fn an_unmap_of_what_is_not_one_mapping_is_caught() {
    let (device, start, backing) = stage();
    wrong!(device.unmap(start, CHUNK) => NotMapped, "unmap(0x100000, 4096 bytes): nothing is mapped there");
    call!(device.map(start, &backing)).unwrap();
    call!(device.map(start.add(CHUNK), &backing)).unwrap();
    wrong!(device.unmap(start, 2 * CHUNK) => WrongSize, "this mapping has 4096 bytes", "from map (call");
    wrong!(device.unmap(start.add(16), CHUNK) => NotMapped, "it starts 16 bytes inside the mapping at 0x100000 of 4096 bytes");
    call!(device.unmap(start, CHUNK)).unwrap();
    wrong!(device.unmap(start, CHUNK) => EndedTwice, "this mapping was already unmapped", "unmapped by unmap (call");
    wrong!(device.fill(start, 0, 16, StreamRef::DEFAULT) => OutOfBounds, "unmapped by unmap (call");
}

#[test]
fn access_is_set_on_whole_mappings_alone() {
    let (device, start, backing) = stage();
    wrong!(device.set_access(start, CHUNK, &OURS) => NotMapped, "nothing is mapped there");
    call!(device.map(start, &backing)).unwrap();
    wrong!(device.set_access(start, CHUNK / 2, &OURS) => NotMapped, "the range is not whole mappings", "from map (call");
    wrong!(device.set_access(start, 2 * CHUNK, &OURS) => NotMapped, "the range is not whole mappings");
    call!(device.set_access(start, CHUNK, &OURS)).unwrap();
    // Two aliases of one backing, side by side, are one range, also when the handle is gone.
    call!(device.map(start.add(CHUNK), &backing)).unwrap();
    call!(device.destroy_backing(backing)).unwrap();
    call!(device.set_access(start, 2 * CHUNK, &OURS)).unwrap();
    call!(device.fill(start.add(100), 0, 2 * CHUNK - 100, StreamRef::DEFAULT)).unwrap();
}

#[test]
fn a_reservation_is_released_whole_and_empty() {
    let (device, start, backing) = stage();
    let bytes = 4 * CHUNK;
    wrong!(device.release(start, CHUNK) => WrongSize, "this reservation has 16384 bytes", "from reserve (call 1");
    call!(device.map(start.add(CHUNK), &backing)).unwrap();
    wrong!(device.release(start, bytes) => StillMapped,
        "the reservation still holds the mapping at 0x101000 of 4096 bytes", "the mapping came from map (call");
    wrong!(device.free(start.add(CHUNK)) => WrongCall, "free(0x101000): this mapping is to be unmapped by unmap");
    wrong!(device.free(start.add(2 * CHUNK)) => Interior, "8192 bytes inside the reservation at 0x100000");
    call!(device.unmap(start.add(CHUNK), CHUNK)).unwrap();
    wrong!(device.release(start.add(CHUNK), bytes) => Interior, "4096 bytes inside the reservation at 0x100000 of 16384 bytes");
    call!(device.release(start, bytes)).unwrap();
    wrong!(device.release(start, bytes) => EndedTwice, "release(0x100000, 16384 bytes): this reservation was already released");
    wrong!(device.release(nowhere(), bytes) => Foreign, "never seen here");
}

#[test]
fn zero_bytes_are_passed_on() {
    let device = subject();
    call!(device.unmap(nowhere(), 0)).unwrap();
    call!(device.release(nowhere(), 0)).unwrap();
    call!(device.set_access(nowhere(), 0, &OURS)).unwrap();
    call!(device.fill(nowhere(), 0, 0, StreamRef::DEFAULT)).unwrap();
    device.device().fail_next();
    device.allocate(0).unwrap_err();
    assert_eq!(device.device().calls().len(), 5);
    assert!(device.misuses().is_empty());
}

#[test]
fn a_map_that_fails_leaves_no_mapping() {
    let (device, start, backing) = stage();
    device.device().fail_next();
    call!(device.map(start, &backing)).unwrap_err();
    call!(device.map(start, &backing)).unwrap();
    device.device().fail_next();
    call!(device.unmap(start, CHUNK)).unwrap_err();
    call!(device.unmap(start, CHUNK)).unwrap();
    call!(device.release(start, 4 * CHUNK)).unwrap();
    assert!(device.misuses().is_empty());
}
