//! Rows about reservations, physical memory and mappings.

use cachette_hal_hip::types::{BackingHandle, Status};

use crate::hip::{Hip, call};

pub(crate) const ROWS: &[super::Row] = &[
    ("odd_and_huge_reservations", odd_reservations),
    ("a_map_over_a_mapping", map_over_mapping),
    ("a_map_outside_a_reservation", map_outside),
    ("a_map_of_less_than_the_handle", map_of_less),
    ("a_map_that_fails_keeps_its_memory", map_that_fails),
    ("rights_and_unmaps_of_parts", parts),
    ("rights_to_mappings_of_several_sizes", rights_by_size),
    ("rights_after_a_failed_map", rights_after_failure),
    ("one_unmap_of_two_mappings", unmap_of_two),
    ("the_device_that_is_named", location),
    ("a_mapping_keeps_its_handle", retain),
];

const PAGE: u64 = 4 << 10;
const CHUNK: u64 = 2 << 20;

fn odd_reservations(hip: &Hip) {
    let refused = Err(hip.seen([2, 1, 1]));
    assert_eq!(hip.reserve(6912, 0), refused);
    assert_eq!(hip.reserve(CHUNK, 3 * PAGE), refused);
    assert_eq!(hip.reserve(1 << 40, 0), Err(2));
    let at = hip.reserve(PAGE, 0).expect("there are addresses");
    assert!(at.is_multiple_of(CHUNK), "{at:#x}");
    assert_eq!(hip.release(at, PAGE), 0);
}

fn retained(hip: &Hip, at: u64) -> Result<BackingHandle, Status> {
    let mut handle = 0;
    let status = call!(hip.extra.retain(&raw mut handle, at));
    if status == 0 { Ok(handle) } else { Err(status) }
}

fn map_over_mapping(hip: &Hip) {
    let (at, handles) = hip.mapped(&[CHUNK]);
    let second = hip.create(CHUNK);
    assert_eq!(hip.map(at, CHUNK, second), hip.seen([0, 0, 1]));
    // Whatever was said, the first is what is mapped, and what gets the right.
    assert_eq!(retained(hip, at), Ok(handles[0]));
    hip.destroy(handles[0]);
    assert_eq!(hip.grant(at, CHUNK), 0);
    hip.destroy(second);
    hip.unmapped(at, &[CHUNK], &handles);
}

fn map_outside(hip: &Hip) {
    let handle = hip.create(CHUNK);
    assert_eq!(hip.map(CHUNK, CHUNK, handle), hip.seen([0, 0, 1]));
    assert_eq!(hip.grant(CHUNK, CHUNK), 1, "setting rights tells that nothing was mapped");
    hip.destroy(handle);
}

fn map_of_less(hip: &Hip) {
    let (at, handle) = (hip.reserve(CHUNK, 0).expect("there are addresses"), hip.create(CHUNK));
    assert_eq!(hip.map(at, CHUNK / 2, handle), 0);
    assert_eq!(hip.grant(at, CHUNK / 2), hip.seen([0, 1, 1]));
    assert_eq!(hip.unmap(at, CHUNK / 2), 0);
    hip.destroy(handle);
    assert_eq!(hip.release(at, CHUNK), 0);
}

fn map_that_fails(hip: &Hip) {
    let (at, free) = (hip.reserve(2 * CHUNK, 0).expect("there are addresses"), hip.free_memory());
    let handle = hip.create(CHUNK);
    assert_eq!(hip.map(at, 2 * CHUNK, handle), hip.seen([0, 0, 1]), "more than the handle has");
    hip.destroy(handle);
    assert_eq!(free - hip.free_memory(), hip.seen([CHUNK, CHUNK, 0]));
    if hip.seen([true, true, false]) {
        hip.destroy(handle);
    }
    assert_eq!(hip.free_memory(), free);
    assert_eq!(hip.release(at, 2 * CHUNK), 0);
}

fn parts(hip: &Hip) {
    let (at, handles) = hip.mapped(&[CHUNK; 2]);
    for bytes in [CHUNK / 2, CHUNK + CHUNK / 2] {
        assert_eq!(hip.grant(at, bytes), hip.seen([0, 1, 1]), "{bytes} bytes");
    }
    assert_eq!(hip.unmap(at, CHUNK / 2), hip.seen([0, 1, 1]));
    hip.unmapped(at, &[CHUNK; 2], &handles);
}

fn rights_by_size(hip: &Hip) {
    for sizes in [&[2, 2, 2][..], &[1, 3], &[3, 1], &[2, 2, 3]] {
        let bytes: Vec<u64> = sizes.iter().map(|size| size * CHUNK).collect();
        let (at, handles) = hip.mapped(&bytes);
        let mut next = at;
        let alone = bytes.iter().map(|bytes| {
            next += bytes;
            hip.grant(next - bytes, *bytes)
        });
        let refused = alone.filter(|status| *status == 1).count();
        assert_eq!(hip.grant(at, bytes.iter().sum()), 0, "{sizes:?}");
        let several = sizes.iter().any(|size| *size != sizes[0]);
        assert_eq!(refused > 0, several && hip.seen([false, true, false]), "{sizes:?}");
        // The list begins with one of them, and all of its size are granted.
        assert!(refused < sizes.len(), "{sizes:?}");
        hip.unmapped(at, &bytes, &handles);
    }
}

fn rights_after_failure(hip: &Hip) {
    let at = hip.reserve(4 * CHUNK, 0).expect("there are addresses");
    let (small, large) = (hip.create(CHUNK), hip.create(2 * CHUNK));
    assert_eq!(hip.map(at, CHUNK, small), 0);
    // It overlaps, so it fails inside.
    assert_eq!(hip.map(at, 2 * CHUNK, large), hip.seen([0, 0, 1]));
    let mut refused = false;
    for _ in 0..16 {
        assert_eq!(hip.unmap(at, CHUNK), 0);
        assert_eq!(hip.map(at, CHUNK, small), 0);
        refused |= hip.grant(at, CHUNK) == 1;
    }
    assert_eq!(refused, hip.seen([false, true, false]), "the failed map stays in the list");
    assert_eq!(hip.unmap(at, CHUNK), 0);
    hip.destroy(small);
    hip.destroy(large);
    assert_eq!(hip.release(at, 4 * CHUNK), 0);
}

fn unmap_of_two(hip: &Hip) {
    let (at, handles) = hip.mapped(&[CHUNK; 2]);
    assert_eq!(hip.unmap(at, 2 * CHUNK), 0);
    assert_eq!(hip.release(at, 2 * CHUNK), hip.seen([999, 0, 0]));
    for handle in handles {
        hip.destroy(handle);
    }
}

fn location(hip: &Hip) {
    const LARGE: u64 = 64 << 20;
    let free = |device| {
        hip.set_device(device);
        hip.free_memory()
    };
    let (first, second) = (free(0), free(1));
    hip.set_device(0);
    let handle = hip.create_on(1, LARGE, 0).expect("there is memory");
    let taken = (first - free(0), second - free(1));
    assert_eq!(taken, hip.seen([(0, LARGE), (LARGE, 0), (LARGE, 0)]));
    hip.set_device(0);
    hip.destroy(handle);
}

fn retain(hip: &Hip) {
    let (at, handles) = hip.mapped(&[CHUNK]);
    hip.destroy(handles[0]);
    assert_eq!(retained(hip, at + PAGE), Ok(handles[0]));
    assert_eq!(hip.unmap(at, CHUNK), 0);
    let free = hip.free_memory();
    hip.destroy(handles[0]);
    assert_eq!(hip.free_memory(), free + CHUNK);
    for nothing in [0, at] {
        assert_eq!(retained(hip, nothing), Err(1));
    }
    assert_eq!(hip.release(at, CHUNK), 0);
}
