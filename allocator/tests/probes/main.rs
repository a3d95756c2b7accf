//! The guarantees of the static probes: tools find them in the program, and their arguments match the callers' values.
//!
//! The test program is the tool here. It reads the ELF notes of its executable and sets breakpoints at the probes.
#![cfg(all(feature = "probes", target_os = "linux", target_arch = "x86_64", target_endian = "little"))]

#[path = "../behaviour/bed.rs"]
#[expect(dead_code, reason = "most of it serves other tests")]
mod bed;
mod listener;
mod notes;

use cachette::Allocator;
use cachette::hal::{Ordinal, StreamRef};
use cachette_hal_host::{HostBackend, HostConfig};

use bed::{Bed, KIB, MIB};
use listener::Listener;

/// The arguments of a probe, in their order.
fn malloc(address: u64, device: u64, bytes: u64, stream: StreamRef) -> (&'static str, Vec<u64>) {
    let told = vec![address, device, bytes, stream.raw() as u64];
    ("malloc", told)
}

fn free(address: u64) -> (&'static str, Vec<u64>) {
    ("free", vec![address])
}

/// Allocates for a caller that keeps only the address.
fn raw(bed: &Bed, bytes: u64, stream: &bed::Lane) -> u64 {
    // SAFETY: the stream outlives the allocator's use of it; the caller keeps both.
    unsafe { bed.allocator.allocate_raw(bytes, stream.handle()) }.expect("there is enough memory")
}

#[test]
fn t7_tools_find_the_probes_and_their_arguments() {
    let mut notes = notes::read();
    notes.sort_by(|one, other| one.name.cmp(&other.name));
    // One location each: tools skip all probes if one note has no valid location.
    let found: Vec<_> = notes.iter().map(|note| (&*note.provider, &*note.name, note.arguments.len())).collect();
    assert_eq!(found, [("cachette", "free", 1), ("cachette", "malloc", 4)]);
    assert!(notes.iter().all(|note| note.semaphore != 0), "{notes:?}");
}

#[test]
fn t7_every_allocation_and_free_is_told_whether_hit_or_miss() {
    let listener = Listener::begin();
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let mut expected = Vec::new();
    // A miss, and then hits.
    for _ in 0..3 {
        let memory = bed.allocate(1000, &stream);
        expected.push(malloc(memory.address(), 0, 1000, stream.handle()));
        expected.push(free(memory.address()));
    }
    let memory = bed.allocate(12 * MIB, &side);
    expected.push(malloc(memory.address(), 0, 12 * MIB, side.handle()));
    expected.push(free(memory.address()));
    memory.record_stream(&stream);
    drop(memory);
    let memory = bed.allocate(3 * MIB, &stream);
    expected.push(malloc(memory.address(), 0, 3 * MIB, stream.handle()));
    expected.push(free(memory.address()));
    memory.release_after(&[&side]).unwrap();
    // This block has guards.
    let memory = bed.allocate(3 * MIB, &stream);
    expected.push(malloc(memory.address(), 0, 3 * MIB, stream.handle()));
    expected.push(free(memory.address()));
    drop(memory);
    assert_eq!(listener.end(), expected);
    bed.assert_sound();
}

#[test]
fn t7_memory_by_address_is_told_as_memory_with_an_owner_is() {
    let listener = Listener::begin();
    let bed = Bed::new();
    let stream = bed.stream();
    let mut expected = Vec::new();
    for bytes in [KIB, KIB, 3 * MIB] {
        let address = raw(&bed, bytes, &stream);
        bed.allocator.free_raw(address).unwrap();
        expected.push(malloc(address, 0, bytes, stream.handle()));
        expected.push(free(address));
    }
    // A change of the owner is neither an allocation nor a free.
    let address = bed.allocate(KIB, &stream).into_raw();
    bed.allocator.free_raw(address).unwrap();
    expected.push(malloc(address, 0, KIB, stream.handle()));
    expected.push(free(address));
    assert_eq!(listener.end(), expected);
    bed.assert_sound();
}

#[test]
fn t7_memory_past_the_cache_is_told_too() {
    let listener = Listener::begin();
    let bed = Bed::with("caching:False");
    let stream = bed.stream();
    let owned = bed.allocate(1000, &stream);
    let first = owned.address();
    drop(owned);
    let second = raw(&bed, 3 * MIB, &stream);
    bed.allocator.free_raw(second).unwrap();
    let expected = [
        malloc(first, 0, 1000, stream.handle()),
        free(first),
        malloc(second, 0, 3 * MIB, stream.handle()),
        free(second),
    ];
    assert_eq!(listener.end(), expected);
}

#[test]
fn t7_the_device_is_told_by_its_number() {
    let listener = Listener::begin();
    let backend = HostBackend::new(HostConfig::default().devices(3)).unwrap();
    let allocator = Allocator::new(backend.device(Ordinal(2)).unwrap());
    let stream = allocator.create_stream().unwrap();
    let address = allocator.allocate(KIB, &stream).unwrap().address();
    let expected = [malloc(address, 2, KIB, stream.handle()), free(address)];
    assert_eq!(listener.end(), expected);
}

#[test]
fn t7_the_stream_of_lent_memory_is_the_borrowers() {
    let listener = Listener::begin();
    let bed = Bed::with("lend_across_streams:True");
    let (owner, borrower) = (bed.stream(), bed.stream());
    let address = bed.allocate(12 * MIB, &owner).address();
    assert_eq!(bed.allocate(12 * MIB, &borrower).address(), address);
    let expected = [
        malloc(address, 0, 12 * MIB, owner.handle()),
        free(address),
        malloc(address, 0, 12 * MIB, borrower.handle()),
        free(address),
    ];
    assert_eq!(listener.end(), expected);
}

#[test]
fn t7_a_restored_state_is_told_as_what_is_freed_and_allocated() {
    let listener = Listener::begin();
    let bed = Bed::new();
    let (stream, pool) = (bed.stream(), bed.allocator.create_pool());
    let inside = pool.enter_all();
    let (kept, gone) = (raw(&bed, KIB, &stream), raw(&bed, 3 * MIB, &stream));
    let mut expected = vec![malloc(kept, 0, KIB, stream.handle()), malloc(gone, 0, 3 * MIB, stream.handle())];
    let saved = pool.checkpoint().unwrap();
    bed.allocator.free_raw(gone).unwrap();
    expected.push(free(gone));
    pool.restore(&saved).unwrap();
    expected.extend([free(kept), malloc(kept, 0, KIB, stream.handle()), malloc(gone, 0, 3 * MIB, stream.handle())]);
    assert_eq!(listener.end(), expected);
    drop(inside);
    for address in [kept, gone] {
        bed.allocator.free_raw(address).unwrap();
    }
}

#[test]
fn t7_what_gives_no_memory_and_takes_none_is_not_told() {
    let listener = Listener::begin();
    let bed = Bed::of(64 * MIB, "");
    let stream = bed.stream();
    drop(bed.allocate(0, &stream));
    assert_eq!(raw(&bed, 0, &stream), 0);
    bed.allocator.free_raw(0).unwrap();
    bed.allocator.allocate(99 * MIB, &stream).unwrap_err();
    bed.allocator.free_raw(0x1234).unwrap_err();
    assert_eq!(listener.end(), []);
}
