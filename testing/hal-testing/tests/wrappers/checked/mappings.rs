//! Misuse of reservations and mappings.

use cachette_hal::{Access, Backing, Device, DevicePtr, Ordinal, Sharing, StreamRef, Transfer, VirtualMemory};
use cachette_hal_testing::checked::MisuseKind;

use super::{Subject, caught, subject};
use crate::fake::call;

const CHUNK: u64 = 4096;
const OURS: [Access; 1] = [Access::ReadWrite(Ordinal(0))];

/// A reservation of four chunks with a backing of one.
fn stage(device: &Subject) -> (DevicePtr, Backing) {
    let start = device.reserve(4 * CHUNK, None).expect("fakes have room");
    let backing = device.create_backing(CHUNK, Sharing::Private, false);
    let backing = backing.expect("fakes have room");
    (start, backing)
}

#[test]
fn a_mapping_that_is_used_well_passes() {
    let device = subject();
    let (start, backing) = stage(&device);
    // Two aliases of one backing, side by side, are one range.
    call!(device.map(start, &backing)).unwrap();
    call!(device.map(start.add(CHUNK), &backing)).unwrap();
    call!(device.set_access(start, 2 * CHUNK, &OURS)).unwrap();
    call!(device.destroy_backing(backing)).unwrap();
    call!(device.fill(start.add(100), 0, 2 * CHUNK - 100, StreamRef::DEFAULT)).unwrap();
    call!(device.unmap(start, CHUNK)).unwrap();
    call!(device.unmap(start.add(CHUNK), CHUNK)).unwrap();
    call!(device.release(start, 4 * CHUNK)).unwrap();
    assert!(device.finish().is_ok());
}

#[test]
fn a_map_outside_any_reservation_is_caught() {
    let device = subject();
    let (start, backing) = stage(&device);
    let what = MisuseKind::NotReserved;
    let parts = ["map(0x1000, 4096 bytes): the range lies in no live reservation"];
    let nowhere = DevicePtr::new(0x1000).unwrap();
    caught(&device, what, &parts, || call!(device.map(nowhere, &backing)));
    let parts = [
        "map(0x103001, 4096 bytes)",
        "it meets the reservation at 0x100000 of 16384 bytes",
        "it came from reserve (call 1",
    ];
    let straddling = start.add(3 * CHUNK + 1);
    caught(&device, what, &parts, || call!(device.map(straddling, &backing)));
    call!(device.release(start, 4 * CHUNK)).unwrap();
    let parts = ["in no live reservation", "released by release"];
    caught(&device, what, &parts, || call!(device.map(start, &backing)));
}

#[test]
fn a_map_over_a_mapping_is_caught() {
    let device = subject();
    let (start, backing) = stage(&device);
    call!(device.map(start.add(CHUNK), &backing)).unwrap();
    let parts = ["the range meets the mapping at 0x101000 of 4096 bytes", "the mapping came from map (call 3"];
    for offset in [CHUNK, CHUNK / 2, CHUNK + CHUNK / 2] {
        caught(&device, MisuseKind::AlreadyMapped, &parts, || call!(device.map(start.add(offset), &backing)));
    }
    call!(device.map(start, &backing)).unwrap();
    call!(device.map(start.add(2 * CHUNK), &backing)).unwrap();
}

#[test]
fn an_unmap_of_what_is_not_one_mapping_is_caught() {
    let device = subject();
    let (start, backing) = stage(&device);
    let parts = ["unmap(0x100000, 4096 bytes): nothing is mapped there"];
    caught(&device, MisuseKind::NotMapped, &parts, || call!(device.unmap(start, CHUNK)));
    call!(device.map(start, &backing)).unwrap();
    call!(device.map(start.add(CHUNK), &backing)).unwrap();
    let parts = ["unmap(0x100000, 8192 bytes): this mapping has 4096 bytes", "from map (call"];
    caught(&device, MisuseKind::WrongSize, &parts, || call!(device.unmap(start, 2 * CHUNK)));
    let parts = ["it starts 16 bytes inside the mapping at 0x100000 of 4096 bytes"];
    caught(&device, MisuseKind::NotMapped, &parts, || call!(device.unmap(start.add(16), CHUNK)));
    call!(device.unmap(start, CHUNK)).unwrap();
    let parts = ["this mapping was already unmapped", "unmapped by unmap (call"];
    caught(&device, MisuseKind::EndedTwice, &parts, || call!(device.unmap(start, CHUNK)));
    let parts = ["fill(0x100000, 16 bytes)", "unmapped by unmap (call"];
    caught(&device, MisuseKind::OutOfBounds, &parts, || call!(device.fill(start, 0, 16, StreamRef::DEFAULT)));
}

#[test]
fn access_is_set_on_whole_mappings_alone() {
    let device = subject();
    let (start, backing) = stage(&device);
    let set = |at: DevicePtr, bytes| call!(device.set_access(at, bytes, &OURS));
    let what = MisuseKind::NotMapped;
    caught(&device, what, &["nothing is mapped there"], || set(start, CHUNK));
    call!(device.map(start, &backing)).unwrap();
    let parts = ["the range is not whole mappings", "from map (call"];
    caught(&device, what, &parts, || set(start, CHUNK / 2));
    caught(&device, what, &parts, || set(start, 2 * CHUNK));
    set(start, CHUNK).unwrap();
}

#[test]
fn a_reservation_is_released_whole_and_empty() {
    let device = subject();
    let (start, backing) = stage(&device);
    let bytes = 4 * CHUNK;
    let parts = ["release(0x100000, 4096 bytes): this reservation has 16384 bytes", "from reserve (call 1"];
    caught(&device, MisuseKind::WrongSize, &parts, || call!(device.release(start, CHUNK)));
    call!(device.map(start.add(CHUNK), &backing)).unwrap();
    let parts =
        ["the reservation still holds the mapping at 0x101000 of 4096 bytes", "the mapping came from map (call"];
    caught(&device, MisuseKind::StillMapped, &parts, || call!(device.release(start, bytes)));
    call!(device.unmap(start.add(CHUNK), CHUNK)).unwrap();
    let parts = ["4096 bytes inside the reservation at 0x100000 of 16384 bytes"];
    caught(&device, MisuseKind::Interior, &parts, || call!(device.release(start.add(CHUNK), bytes)));
    call!(device.release(start, bytes)).unwrap();
    let parts = ["release(0x100000, 16384 bytes): this reservation was already released"];
    caught(&device, MisuseKind::EndedTwice, &parts, || call!(device.release(start, bytes)));
    let nowhere = DevicePtr::new(0x1000).unwrap();
    caught(&device, MisuseKind::Foreign, &["never seen here"], || call!(device.release(nowhere, bytes)));
}

#[test]
fn addresses_of_a_mapping_are_not_memory_to_free() {
    let device = subject();
    let (start, backing) = stage(&device);
    call!(device.map(start, &backing)).unwrap();
    let parts = ["free(0x100000): this mapping is to be unmapped by unmap"];
    caught(&device, MisuseKind::WrongCall, &parts, || call!(device.free(start)));
    let parts = ["8192 bytes inside the reservation at 0x100000"];
    caught(&device, MisuseKind::Interior, &parts, || call!(device.free(start.add(2 * CHUNK))));
}

#[test]
fn zero_bytes_are_passed_on() {
    let device = subject();
    let nowhere = DevicePtr::new(0x1000).unwrap();
    call!(device.unmap(nowhere, 0)).unwrap();
    call!(device.release(nowhere, 0)).unwrap();
    call!(device.set_access(nowhere, 0, &OURS)).unwrap();
    assert_eq!(device.device().calls().len(), 3);
    assert!(device.misuses().is_empty());
}

#[test]
fn a_map_that_fails_leaves_no_mapping() {
    let device = subject();
    let (start, backing) = stage(&device);
    device.device().fail_next();
    call!(device.map(start, &backing)).unwrap_err();
    call!(device.map(start, &backing)).unwrap();
    device.device().fail_next();
    call!(device.unmap(start, CHUNK)).unwrap_err();
    call!(device.unmap(start, CHUNK)).unwrap();
    call!(device.release(start, 4 * CHUNK)).unwrap();
    assert!(device.misuses().is_empty());
}
