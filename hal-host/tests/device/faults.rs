//! Bad accesses: reported, sticky, and without harm.

use cachette_hal::{Call, Device, DevicePtr, ErrorKind, Ordinal, PeerAccess, Progress, StreamRef};

use crate::rig::{MIB, Rig, rig, rigs, threaded};

const STREAM: StreamRef = StreamRef::DEFAULT;

fn is_faulty(device: &Rig) -> bool {
    let answer = device.synchronize_device();
    assert_eq!(answer.is_err(), device.memory_info().is_err());
    answer.is_err_and(|error| error.kind() == ErrorKind::Fault)
}

#[test]
fn a_bad_access_is_reported_by_every_later_call() {
    let device = rig(threaded());
    let memory = device.allocate(4096).unwrap();
    let nowhere = DevicePtr::new(0x10).unwrap();
    device.fill(nowhere, 1, 16, STREAM).unwrap();
    let error = device.synchronize(STREAM).unwrap_err();
    assert_eq!((error.kind(), error.call()), (ErrorKind::Fault, "synchronize"));
    for _ in 0..2 {
        assert_eq!(device.allocate(1).unwrap_err().kind(), ErrorKind::Fault);
        assert_eq!(device.create_event().unwrap_err().kind(), ErrorKind::Fault);
        assert_eq!(device.free(memory).unwrap_err().kind(), ErrorKind::Fault);
    }
    assert_eq!(device.info().total_memory, 64 * MIB);
    assert_eq!(device.calls(Call::Allocate), 3, "failed calls count");
}

#[test]
fn what_is_freed_and_what_lies_beyond_faults() {
    for beyond in [false, true] {
        let device = rig(threaded());
        let memory = device.allocate(4096).unwrap();
        if beyond {
            device.fill(memory.add(4000), 1, 97, STREAM).unwrap();
        } else {
            device.free(memory).unwrap();
            device.fill(memory, 1, 1, STREAM).unwrap();
        }
        assert!(is_faulty(&device), "beyond: {beyond}");
    }
}

#[test]
fn nothing_is_touched_by_a_bad_access_nor_after_it() {
    let [device, other] = rigs(threaded().devices(2));
    let memory = device.allocate(4096).unwrap();
    other.enable_peer(Ordinal(0)).unwrap();
    let stream = device.stream();
    device.fill(memory, 1, 4097, stream.borrow()).unwrap();
    device.fill(memory, 2, 4096, stream.borrow()).unwrap();
    assert!(is_faulty(&device));
    assert_eq!(other.read(memory, 4096), [0; 4096], "seen by a device that is whole");
}

#[test]
fn who_waits_for_an_event_behind_a_fault_is_let_go() {
    let [device, other] = rigs(threaded().devices(2));
    let (stream, event) = (device.stream(), device.event());
    let hold = device.hold(stream.borrow()).unwrap();
    let nowhere = DevicePtr::new(0x10).unwrap();
    device.fill(nowhere, 1, 1, stream.borrow()).unwrap();
    device.record(&event, stream.borrow()).unwrap();
    let waiting = other.stream();
    other.stream_wait(waiting.borrow(), &event).unwrap();
    hold.release();
    other.synchronize(waiting.borrow()).unwrap();
    assert_eq!(other.poll(&event), Ok(Progress::Done));
    assert!(is_faulty(&device));
    assert!(!is_faulty(&other));
}

#[test]
fn a_peer_is_reached_only_once_enabled() {
    let [device, other] = rigs(threaded().devices(2));
    let (own, foreign) = (device.allocate(64).unwrap(), other.allocate(64).unwrap());
    other.fill(foreign, 9, 64, STREAM).unwrap();
    other.synchronize_device().unwrap();
    device.enable_peer(Ordinal(1)).unwrap();
    device.copy(own, foreign, 64, STREAM).unwrap();
    assert_eq!(device.read(own, 64), [9; 64]);
    device.disable_peer(Ordinal(1)).unwrap();
    device.copy(own, foreign, 64, STREAM).unwrap();
    assert!(is_faulty(&device));
    assert!(!is_faulty(&other));
}

#[test]
fn a_host_function_that_panics_is_a_fault() {
    let device = rig(threaded());
    device.call_host(STREAM, || panic!("on purpose")).unwrap();
    assert!(is_faulty(&device));
}
