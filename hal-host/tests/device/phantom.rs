//! Phantom memory: accounting without bytes.

use cachette_hal::{CaptureMode, Device, ErrorKind, Feature, Reason, Sharing, StreamRef, VirtualMemory};

use crate::rig::{MIB, Rig, rig, threaded};

const GIB: u64 = 1 << 30;

fn card() -> Rig {
    rig(threaded().phantom(true).capacity(100 * GIB))
}

#[test]
fn a_hundred_gibibytes_are_accounted_for() {
    let device = card();
    let all: Vec<_> = (0..100).map(|_| device.allocate(GIB).unwrap()).collect();
    assert_eq!(device.memory_info().unwrap().free, 0);
    assert_eq!(device.allocate(1).unwrap_err().kind(), ErrorKind::OutOfMemory);
    let mut starts: Vec<_> = all.iter().map(|ptr| ptr.address()).collect();
    starts.sort_unstable();
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= GIB));
    for ptr in all {
        device.free(ptr).unwrap();
    }
    assert_eq!(device.physical_bytes(), 0);
    let again = device.allocate(GIB).unwrap();
    assert!(starts.contains(&again.address()), "addresses are used again");
}

#[test]
fn accesses_are_checked_and_nothing_is_touched() {
    let device = card();
    let memory = device.allocate(50 * GIB).unwrap();
    device.fill(memory, 1, 50 * GIB, StreamRef::DEFAULT).unwrap();
    device.copy(memory, memory.add(25 * GIB), 25 * GIB, StreamRef::DEFAULT).unwrap();
    assert_eq!(device.read(memory, 8), [0; 8], "the host's bytes stay as they were");
    device.fill(memory.add(1), 1, 50 * GIB, StreamRef::DEFAULT).unwrap();
    assert_eq!(device.synchronize_device().unwrap_err().kind(), ErrorKind::Fault);
}

#[test]
fn virtual_memory_works_by_the_same_rules() {
    let device = card();
    let chunk = device.granularity().minimum;
    let at = device.reserve(1 << 42, None).unwrap();
    assert_eq!(at.address() % device.granularity().recommended, 0);
    let backing = device.create_backing(chunk, Sharing::Private, false).unwrap();
    device.map(at, &backing).unwrap();
    assert_eq!(device.map(at, &backing).unwrap_err().kind(), ErrorKind::InvalidValue);
    device.map(at.add(chunk), &backing).unwrap();
    device.destroy_backing(backing).unwrap();
    assert_eq!(device.physical_bytes(), chunk);
    device.grant(at, 2 * chunk).unwrap();
    device.fill(at, 1, 2 * chunk, StreamRef::DEFAULT).unwrap();
    device.synchronize_device().unwrap();
    device.unmap(at, chunk).unwrap();
    device.unmap(at.add(chunk), chunk).unwrap();
    assert_eq!(device.physical_bytes(), 0);
    device.release(at, 1 << 42).unwrap();
}

#[test]
fn what_needs_bytes_is_missing() {
    let device = card();
    let missing = device.missing(Feature::Ipc).unwrap();
    assert_eq!(missing.reason, Reason::DeviceLacks("real memory"));
    let shared = device.create_backing(2 * MIB, Sharing::FileDescriptor, false);
    assert_eq!(shared.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn graphs_and_the_pool_need_no_bytes_either() {
    let device = card();
    let stream = device.stream();
    let stream = stream.borrow();
    let memory = device.allocate_on(GIB, stream).unwrap();
    device.begin_capture(stream, CaptureMode::Global).unwrap();
    device.fill(memory, 1, GIB, stream).unwrap();
    let graph = device.end_capture(stream).unwrap();
    device.launch(&graph, stream).unwrap();
    device.free_on(memory, stream).unwrap();
    device.synchronize(stream).unwrap();
    device.launch(&graph, stream).unwrap();
    let error = device.synchronize(stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fault, "the memory is the pool's again");
}
