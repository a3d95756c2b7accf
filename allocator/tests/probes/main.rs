//! The guarantees of the static probes: tools find them in the program, and their arguments match the callers' values.
//!
//! The test program is the tool here. It reads the ELF notes of its executable and sets breakpoints at the probes.
#![cfg(all(feature = "probes", target_os = "linux", target_arch = "x86_64", target_endian = "little"))]

#[path = "../behaviour/fixture.rs"]
#[expect(dead_code, reason = "most of it serves other tests")]
mod fixture;
mod listener;
mod notes;

use cachette::Allocator;
use cachette::hal::{Ordinal, StreamRef};
use cachette_hal_host::{HostBackend, HostConfig};

use fixture::{KIB, MIB, TestAllocator, any};
use listener::Listener;

/// The arguments of a probe, in their order.
fn malloc(address: u64, device: u64, bytes: u64, stream: StreamRef) -> (&'static str, Vec<u64>) {
    let told = vec![address, device, bytes, stream.raw() as u64];
    ("malloc", told)
}

fn free(address: u64) -> (&'static str, Vec<u64>) {
    ("free", vec![address])
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
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let mut expected = Vec::new();
    // A miss, and then hits.
    for _ in 0..3 {
        let memory = test.allocate(1000, &stream);
        expected.push(malloc(memory.address(), 0, 1000, stream.handle()));
        expected.push(free(memory.address()));
    }
    let memory = test.allocate(12 * MIB, &side);
    expected.push(malloc(memory.address(), 0, 12 * MIB, side.handle()));
    expected.push(free(memory.address()));
    memory.record_stream(&stream);
    drop(memory);
    let memory = test.allocate(3 * MIB, &stream);
    expected.push(malloc(memory.address(), 0, 3 * MIB, stream.handle()));
    expected.push(free(memory.address()));
    memory.release_after(&[&side]).unwrap();
    // This block has guards.
    let memory = test.allocate(3 * MIB, &stream);
    expected.push(malloc(memory.address(), 0, 3 * MIB, stream.handle()));
    expected.push(free(memory.address()));
    drop(memory);
    assert_eq!(listener.end(), expected);
    test.assert_sound();
}

#[test]
fn t7_memory_by_address_is_told_as_memory_with_an_owner_is() {
    let listener = Listener::begin();
    let (test, [stream]) = TestAllocator::new().with_streams();
    let mut expected = Vec::new();
    for bytes in [KIB, KIB, 3 * MIB] {
        let address = test.allocate_raw(bytes, &stream);
        test.allocator.free_raw(address).unwrap();
        expected.push(malloc(address, 0, bytes, stream.handle()));
        expected.push(free(address));
    }
    // A change of the owner is neither an allocation nor a free.
    let address = test.allocate(KIB, &stream).into_raw();
    test.allocator.free_raw(address).unwrap();
    expected.push(malloc(address, 0, KIB, stream.handle()));
    expected.push(free(address));
    assert_eq!(listener.end(), expected);
    test.assert_sound();
}

#[test]
fn t7_memory_past_the_cache_is_told_too() {
    let listener = Listener::begin();
    let (test, [stream]) = TestAllocator::with("caching:False").with_streams();
    let owned = test.allocate(1000, &stream);
    let first = owned.address();
    drop(owned);
    let second = test.allocate_raw(3 * MIB, &stream);
    test.allocator.free_raw(second).unwrap();
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
    let allocator = Allocator::new(any(backend.device(Ordinal(2)).unwrap()));
    let stream = allocator.create_stream().unwrap();
    let address = allocator.allocate(KIB, &stream).unwrap().address();
    let expected = [malloc(address, 2, KIB, stream.handle()), free(address)];
    assert_eq!(listener.end(), expected);
}

#[test]
fn t7_the_stream_of_lent_memory_is_the_borrowers() {
    let listener = Listener::begin();
    let (test, [owner, borrower]) = TestAllocator::with("lend_across_streams:True").with_streams();
    let address = test.allocate(12 * MIB, &owner).address();
    assert_eq!(test.allocate(12 * MIB, &borrower).address(), address);
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
    let test = TestAllocator::new();
    let (stream, pool) = (test.stream(), test.allocator.create_pool());
    let inside = pool.enter_all();
    let (kept, gone) = (test.allocate_raw(KIB, &stream), test.allocate_raw(3 * MIB, &stream));
    let mut expected = vec![malloc(kept, 0, KIB, stream.handle()), malloc(gone, 0, 3 * MIB, stream.handle())];
    let saved = pool.checkpoint().unwrap();
    test.allocator.free_raw(gone).unwrap();
    expected.push(free(gone));
    pool.restore(&saved).unwrap();
    expected.extend([free(kept), malloc(kept, 0, KIB, stream.handle()), malloc(gone, 0, 3 * MIB, stream.handle())]);
    assert_eq!(listener.end(), expected);
    drop(inside);
    for address in [kept, gone] {
        test.allocator.free_raw(address).unwrap();
    }
}

#[test]
fn t7_what_gives_no_memory_and_takes_none_is_not_told() {
    let listener = Listener::begin();
    let (test, [stream]) = TestAllocator::of(64 * MIB, "").with_streams();
    drop(test.allocate(0, &stream));
    assert_eq!(test.allocate_raw(0, &stream), 0);
    test.allocator.free_raw(0).unwrap();
    test.allocator.allocate(99 * MIB, &stream).unwrap_err();
    test.allocator.free_raw(0x1234).unwrap_err();
    assert_eq!(listener.end(), []);
}
