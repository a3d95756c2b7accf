//! Rows about reservations, physical memory and mappings.

use cachette_hal_hip::types::MemLocation;

use crate::hip::{Hip, properties};

pub(crate) const ROWS: &[super::Row] = &[
    ("granularities", granularities),
    ("sizes_of_physical_memory", sizes_of_physical_memory),
    ("odd_reservations", odd_reservations),
    ("a_reservation_is_aligned_to_2_mib", alignment),
    ("a_tebibyte_is_out_of_memory", tebibyte),
    ("an_offset_is_refused", offset),
    ("a_map_over_a_mapping", map_over_mapping),
    ("a_map_outside_a_reservation", map_outside),
    ("a_map_of_less_than_the_handle", map_of_less),
    ("a_map_that_fails_keeps_its_memory", map_that_fails),
    ("rights_to_several_mappings", rights_to_several),
    ("rights_to_parts", rights_to_parts),
    ("rights_to_mappings_of_several_sizes", rights_by_size),
    ("rights_after_a_failed_map", rights_after_failure),
    ("rights_after_a_map_over_a_mapping", rights_after_map_over),
    ("rights_to_nothing", rights_to_nothing),
    ("an_unmap_of_a_part", unmap_of_part),
    ("one_unmap_of_two_mappings", unmap_of_two),
    ("a_release_before_the_unmap", release_before_unmap),
    ("one_handle_at_two_addresses", aliases),
    ("a_copy_across_two_mappings", copy_across),
    ("the_range_of_a_mapped_address", address_range),
    ("the_device_that_is_named", location),
    ("a_handle_is_retained", retain),
    ("a_mapping_keeps_its_handle", retain_after_release),
    ("the_rights_of_a_device", rights_of_device),
    ("a_handle_of_no_memory_is_refused", retain_nothing),
    ("the_granularity_is_that_of_every_kind", granularity_of_any_kind),
];

const PAGE: u64 = 4 << 10;
const CHUNK: u64 = 2 << 20;

fn granularities(hip: &Hip) {
    let ask = |option| {
        let (wanted, mut found) = (properties(0, 0), 0);
        // SAFETY: both structures outlive the call.
        let status = unsafe { (hip.vm().hipMemGetAllocationGranularity)(&raw mut found, &raw const wanted, option) };
        assert_eq!(status, 0);
        found
    };
    assert_eq!(ask(0), PAGE);
    assert_eq!(ask(1), hip.seen([PAGE, PAGE, CHUNK]));
}

fn sizes_of_physical_memory(hip: &Hip) {
    for bytes in [0, 1, 6912] {
        assert_eq!(hip.create_on(0, bytes, 0), Err(1), "{bytes} bytes");
    }
    assert_eq!(hip.create_on(0, 2048, 0), Err(hip.seen([2, 2, 1])));
    hip.destroy(hip.create(PAGE));
}

fn odd_reservations(hip: &Hip) {
    let refused = Err(hip.seen([2, 1, 1]));
    assert_eq!(hip.reserve(6912, 0), refused);
    assert_eq!(hip.reserve(CHUNK, 3 * PAGE), refused);
}

fn alignment(hip: &Hip) {
    let at = hip.reserve(PAGE, 0).expect("there are addresses");
    assert!(at.is_multiple_of(CHUNK), "{at:#x}");
    assert_eq!(hip.release(at, PAGE), 0);
}

fn tebibyte(hip: &Hip) {
    assert_eq!(hip.reserve(1 << 40, 0), Err(2));
}

fn offset(hip: &Hip) {
    let (at, handle) = (hip.reserve(CHUNK, 0).expect("there are addresses"), hip.create(CHUNK));
    // SAFETY: the library checks all of them.
    let status = unsafe { (hip.vm().hipMemMap)(at, PAGE, PAGE, handle, 0) };
    assert_eq!(status, 1);
    hip.destroy(handle);
    assert_eq!(hip.release(at, CHUNK), 0);
}

fn map_over_mapping(hip: &Hip) {
    let at = hip.reserve(CHUNK, 0).expect("there are addresses");
    let (first, second) = (hip.create(CHUNK), hip.create(CHUNK));
    assert_eq!(hip.map(at, CHUNK, first), 0);
    assert_eq!(hip.map(at, CHUNK, second), hip.seen([0, 0, 1]));
    // Whatever was said, the first is what is mapped.
    let mut found = 0;
    // SAFETY: the out-parameter outlives the call.
    assert_eq!(unsafe { (hip.extra.retain)(&raw mut found, at) }, 0);
    assert_eq!(found, first);
    hip.destroy(found);
    assert_eq!(hip.unmap(at, CHUNK), 0);
    hip.destroy(first);
    hip.destroy(second);
    assert_eq!(hip.release(at, CHUNK), 0);
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

/// Two adjacent mappings of a chunk each.
fn with_two(hip: &Hip, act: impl FnOnce(u64)) {
    let at = hip.reserve(2 * CHUNK, 0).expect("there are addresses");
    let handles = [hip.create(CHUNK), hip.create(CHUNK)];
    assert_eq!(hip.map(at, CHUNK, handles[0]), 0);
    assert_eq!(hip.map(at + CHUNK, CHUNK, handles[1]), 0);
    act(at);
    for handle in handles {
        hip.destroy(handle);
    }
}

/// Unmaps each of two mappings, and releases their addresses.
fn undo_two(hip: &Hip, at: u64) {
    for at in [at, at + CHUNK] {
        assert_eq!(hip.unmap(at, CHUNK), 0);
    }
    assert_eq!(hip.release(at, 2 * CHUNK), 0);
}

fn rights_to_several(hip: &Hip) {
    with_two(hip, |at| {
        assert_eq!(hip.grant(at, 2 * CHUNK), 0);
        undo_two(hip, at);
    });
}

fn rights_to_parts(hip: &Hip) {
    with_two(hip, |at| {
        for bytes in [CHUNK / 2, CHUNK + CHUNK / 2] {
            assert_eq!(hip.grant(at, bytes), hip.seen([0, 1, 1]), "{bytes} bytes");
        }
        undo_two(hip, at);
    });
}

fn rights_to_nothing(hip: &Hip) {
    let at = hip.reserve(CHUNK, 0).expect("there are addresses");
    assert_eq!(hip.grant(at, CHUNK), 1);
    assert_eq!(hip.release(at, CHUNK), 0);
}

/// What each mapping answers when its right is set alone, and all in one call, in units of a chunk.
fn rights_of(hip: &Hip, sizes: &[u64]) -> (Vec<i32>, i32) {
    let total = sizes.iter().sum::<u64>() * CHUNK;
    let at = hip.reserve(total, 0).expect("there are addresses");
    let mut next = at;
    let mappings: Vec<_> = sizes
        .iter()
        .map(|size| {
            let (start, bytes, handle) = (next, size * CHUNK, hip.create(size * CHUNK));
            assert_eq!(hip.map(start, bytes, handle), 0);
            next += bytes;
            (start, bytes, handle)
        })
        .collect();
    let alone = mappings.iter().map(|(start, bytes, _)| hip.grant(*start, *bytes)).collect();
    let together = hip.grant(at, total);
    for (start, bytes, handle) in mappings {
        assert_eq!(hip.unmap(start, bytes), 0);
        hip.destroy(handle);
    }
    assert_eq!(hip.release(at, total), 0);
    (alone, together)
}

fn rights_by_size(hip: &Hip) {
    assert_eq!(rights_of(hip, &[2, 2, 2]), (vec![0; 3], 0));
    for sizes in [&[1_u64, 3][..], &[3, 1], &[2, 2, 3], &[1, 1, 1, 3, 2]] {
        let (alone, together) = rights_of(hip, sizes);
        assert_eq!(together, 0, "{sizes:?}");
        let refused = alone.iter().filter(|status| **status == 1).count();
        assert_eq!(refused > 0, hip.seen([false, true, false]), "{sizes:?}: {alone:?}");
        // The list begins with one of them, and all of its size are granted.
        assert!(refused < sizes.len(), "{sizes:?}: {alone:?}");
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

fn rights_after_map_over(hip: &Hip) {
    let at = hip.reserve(2 * CHUNK, 0).expect("there are addresses");
    let (first, second) = (hip.create(CHUNK), hip.create(CHUNK));
    assert_eq!(hip.map(at, CHUNK, first), 0);
    assert_eq!(hip.map(at + CHUNK, CHUNK, first), 0);
    assert_eq!(hip.grant(at + CHUNK, CHUNK), 0);
    assert_eq!(hip.map(at, CHUNK, second), hip.seen([0, 0, 1]));
    assert_eq!(hip.grant(at, CHUNK), 0, "the right goes to what was mapped first");
    let elsewhere = hip.malloc(CHUNK);
    fill_and_copy(hip, at + CHUNK, elsewhere, CHUNK);
    assert_eq!(last_byte(hip, at, CHUNK), 0x5a, "both addresses show the first");
    hip.free(elsewhere);
    assert_eq!(hip.unmap(at, CHUNK), 0);
    assert_eq!(hip.unmap(at + CHUNK, CHUNK), 0);
    hip.destroy(first);
    hip.destroy(second);
    assert_eq!(hip.release(at, 2 * CHUNK), 0);
}

fn unmap_of_part(hip: &Hip) {
    let (at, handle) = (hip.reserve(CHUNK, 0).expect("there are addresses"), hip.create(CHUNK));
    assert_eq!(hip.map(at, CHUNK, handle), 0);
    assert_eq!(hip.unmap(at, CHUNK / 2), hip.seen([0, 1, 1]));
    assert_eq!(hip.unmap(at, CHUNK), 0, "it was all there");
    hip.destroy(handle);
    assert_eq!(hip.release(at, CHUNK), 0);
}

fn unmap_of_two(hip: &Hip) {
    with_two(hip, |at| {
        assert_eq!(hip.unmap(at, 2 * CHUNK), 0);
        assert_eq!(hip.release(at, 2 * CHUNK), hip.seen([999, 0, 0]));
    });
}

fn release_before_unmap(hip: &Hip) {
    let (at, handle) = (hip.reserve(CHUNK, 0).expect("there are addresses"), hip.create(CHUNK));
    assert_eq!(hip.map(at, CHUNK, handle), 0);
    hip.destroy(handle);
    assert_eq!(hip.grant(at, CHUNK), 0);
    assert_eq!(hip.unmap(at, CHUNK), 0);
    assert_eq!(hip.release(at, CHUNK), 0);
}

/// Fills one range, copies it to another, and reads a byte of that.
fn fill_and_copy(hip: &Hip, from: u64, to: u64, bytes: u64) -> u8 {
    let transfer = hip.symbols.transfer.as_ref().expect("it has every function");
    let stream = hip.stream();
    // SAFETY: rows pass ranges that are mapped, and wait for the stream before they undo that.
    let status = unsafe { (transfer.hipMemsetAsync)(from, 0x5a, bytes, stream) };
    assert_eq!(status, 0);
    // SAFETY: as above.
    let status = unsafe { (transfer.hipMemcpyDtoDAsync)(to, from, bytes, stream) };
    assert_eq!(status, 0);
    assert_eq!(hip.synchronize(stream), 0);
    hip.destroy_stream(stream);
    last_byte(hip, to, bytes)
}

fn last_byte(hip: &Hip, of: u64, bytes: u64) -> u8 {
    let transfer = hip.symbols.transfer.as_ref().expect("it has every function");
    let (stream, mut found) = (hip.stream(), 0_u8);
    let (target, last) = ((&raw mut found).cast(), of + bytes - 1);
    // SAFETY: rows pass ranges that are mapped, and the byte outlives the wait.
    let status = unsafe { (transfer.hipMemcpyDtoHAsync)(target, last, 1, stream) };
    assert_eq!(status, 0);
    assert_eq!(hip.synchronize(stream), 0);
    hip.destroy_stream(stream);
    found
}

fn aliases(hip: &Hip) {
    let (at, handle) = (hip.reserve(2 * CHUNK, 0).expect("there are addresses"), hip.create(CHUNK));
    for at in [at, at + CHUNK] {
        assert_eq!(hip.map(at, CHUNK, handle), 0);
        assert_eq!(hip.grant(at, CHUNK), 0);
    }
    let elsewhere = hip.malloc(CHUNK);
    // What is written at one address is what is read at the other.
    assert_eq!(fill_and_copy(hip, at, elsewhere, CHUNK), 0x5a);
    assert_eq!(fill_and_copy(hip, elsewhere, at + CHUNK, CHUNK), 0x5a);
    hip.free(elsewhere);
    undo_two(hip, at);
    hip.destroy(handle);
}

fn copy_across(hip: &Hip) {
    with_two(hip, |at| {
        assert_eq!(hip.grant(at, 2 * CHUNK), 0);
        let plain = hip.malloc(CHUNK);
        assert_eq!(fill_and_copy(hip, at + CHUNK / 2, plain, CHUNK), 0x5a);
        hip.free(plain);
        undo_two(hip, at);
    });
}

fn address_range(hip: &Hip) {
    let addresses = hip.symbols.addresses.as_ref().expect("it has every function");
    with_two(hip, |at| {
        let (mut base, mut bytes) = (0, 0);
        let inside = at + CHUNK + PAGE;
        // SAFETY: the out-parameters outlive the call.
        let status = unsafe { (addresses.hipMemGetAddressRange)(&raw mut base, &raw mut bytes, inside) };
        assert_eq!((status, base, bytes), (0, at + CHUNK, CHUNK), "the mapping, and no more");
        undo_two(hip, at);
    });
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
    let (at, handle) = (hip.reserve(CHUNK, 0).expect("there are addresses"), hip.create(CHUNK));
    assert_eq!(hip.map(at, CHUNK, handle), 0);
    let mut again = 0;
    // SAFETY: the out-parameter outlives the call.
    assert_eq!(unsafe { (hip.extra.retain)(&raw mut again, at + PAGE) }, 0);
    assert_eq!(again, handle);
    hip.destroy(handle);
    hip.destroy(again);
    assert_eq!(hip.unmap(at, CHUNK), 0);
    assert_eq!(hip.release(at, CHUNK), 0);
}

fn retain_after_release(hip: &Hip) {
    let (at, handle) = (hip.reserve(CHUNK, 0).expect("there are addresses"), hip.create(CHUNK));
    assert_eq!(hip.map(at, CHUNK, handle), 0);
    hip.destroy(handle);
    let mut again = 0;
    // SAFETY: the out-parameter outlives the call.
    assert_eq!(unsafe { (hip.extra.retain)(&raw mut again, at) }, 0);
    assert_eq!(again, handle);
    assert_eq!(hip.unmap(at, CHUNK), 0);
    let free = hip.free_memory();
    hip.destroy(again);
    assert_eq!(hip.free_memory(), free + CHUNK);
    assert_eq!(hip.release(at, CHUNK), 0);
}

fn retain_nothing(hip: &Hip) {
    let (at, mut handle) = (hip.reserve(CHUNK, 0).expect("there are addresses"), 0);
    for address in [0, at] {
        // SAFETY: the out-parameter outlives the call.
        assert_eq!(unsafe { (hip.extra.retain)(&raw mut handle, address) }, 1);
    }
    assert_eq!(hip.release(at, CHUNK), 0);
}

fn granularity_of_any_kind(hip: &Hip) {
    let (wanted, mut found) = (properties(0, 77), 0);
    // SAFETY: both structures outlive the call.
    let status = unsafe { (hip.vm().hipMemGetAllocationGranularity)(&raw mut found, &raw const wanted, 0) };
    assert_eq!((status, found), (0, PAGE));
    assert_eq!(hip.create_on(0, PAGE, 77), Err(1));
}

fn rights_of_device(hip: &Hip) {
    let (at, handle) = (hip.reserve(CHUNK, 0).expect("there are addresses"), hip.create(CHUNK));
    let ask = || {
        let (mut flags, location) = (77, MemLocation::device(0));
        // SAFETY: both outlive the call.
        let status = unsafe { (hip.extra.access)(&raw mut flags, &raw const location, at) };
        (status, flags)
    };
    assert_eq!(ask(), (1, 77));
    assert_eq!(hip.map(at, CHUNK, handle), 0);
    assert_eq!(ask(), (0, 0));
    assert_eq!(hip.grant(at, CHUNK), 0);
    assert_eq!(ask(), (0, 3));
    assert_eq!(hip.unmap(at, CHUNK), 0);
    hip.destroy(handle);
    assert_eq!(hip.release(at, CHUNK), 0);
}
