//! Driver calls that fail during a restore: nothing is lost, and the next restore succeeds.

use cachette::hal::{Call, ErrorKind};
use cachette::{AddressesProblem, Error};
use cachette_hal_host::HostConfig;

use crate::{Bed, MIB, assert_places};

const SIZES: [u64; 5] = [3 * MIB, 512, 30 * MIB, MIB, 5 * MIB];

/// Restores while the `nth` driver call fails. Returns whether there were so many.
fn restore_failing(host: HostConfig, nth: u64, kind: ErrorKind, twice: bool) -> bool {
    let bed = Bed::on(host);
    let (stream, side) = (bed.stream(), bed.stream());
    let other = bed.allocator.create_pool();
    let live = other.allocate(3 * MIB, &stream).unwrap();
    let pool = bed.allocator.create_pool();
    let blocks: Vec<_> = SIZES.iter().zip([&stream, &side, &stream, &side, &stream]).collect();
    let blocks: Vec<_> = blocks.into_iter().map(|(bytes, stream)| pool.allocate(*bytes, stream).unwrap()).collect();
    let saved = pool.save_addresses().unwrap();
    assert_eq!(saved.segments().len(), 2);
    drop((blocks, pool));
    bed.allocator.empty_cache().unwrap();
    let held = bed.device.physical_bytes();
    let before = bed.device.total_calls();
    bed.device.fail_nth_call(nth, kind);
    if twice {
        bed.device.fail_next(Call::Unmap, 1, ErrorKind::Other);
    }
    let restored = bed.allocator.restore_addresses(&saved, &stream);
    let reached = bed.device.total_calls() - before >= nth;
    bed.device.clear_failures();
    match restored {
        Ok((pool, blocks)) => {
            assert_places(&saved, &blocks);
            drop((blocks, pool));
        }
        // Addresses that the driver refused to release stay taken until the next try.
        Err(Error::Addresses(problem)) if reached => {
            assert!(matches!(*problem, AddressesProblem::Taken { .. }), "call {nth}, {kind:?}: {problem}");
        }
        Err(Error::Device(error)) if reached => assert_eq!(error.kind(), kind),
        Err(error) => panic!("call {nth}, {kind:?}: {error}"),
    }
    bed.allocator.check().unwrap();
    bed.allocator.empty_cache().unwrap();
    assert_eq!(bed.device.physical_bytes(), held, "call {nth}, {kind:?}");
    let (pool, blocks) = bed.allocator.restore_addresses(&saved, &stream).unwrap();
    assert_places(&saved, &blocks);
    assert_eq!(bed.device.physical_bytes(), held + saved.bytes());
    bed.close((blocks, pool, live, other, stream, side));
    reached
}

#[test]
fn every_failing_call_loses_nothing() {
    for kind in [ErrorKind::Other, ErrorKind::InvalidValue] {
        while_reached(|nth| restore_failing(HostConfig::default(), nth, kind, false));
    }
}

#[test]
fn a_roll_back_that_fails_too_is_finished_later() {
    while_reached(|nth| restore_failing(HostConfig::default(), nth, ErrorKind::Other, true));
}

#[test]
fn a_device_that_is_out_of_memory_once_is_asked_again() {
    while_reached(|nth| restore_failing(HostConfig::default(), nth, ErrorKind::OutOfMemory, false));
}

/// Makes each call fail in turn: two segments are reserved, made, mapped and granted.
fn while_reached(restore: impl Fn(u64) -> bool) {
    let calls = (1..100).take_while(|nth| restore(*nth)).count();
    assert!((8..99).contains(&calls), "{calls}");
}
