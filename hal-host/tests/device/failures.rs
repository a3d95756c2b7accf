//! Calls that fail on demand.

use cachette_hal::{Call, Device, ErrorKind};

use crate::rig::{MIB, rig, rigs, threaded};

#[test]
fn the_nth_call_of_a_kind_fails_once_and_has_no_effect() {
    let device = rig(threaded());
    device.fail_next(Call::Allocate, 2, ErrorKind::OutOfMemory);
    device.allocate(MIB).unwrap();
    let error = device.allocate(MIB).unwrap_err();
    assert_eq!((error.kind(), error.call()), (ErrorKind::OutOfMemory, "allocate"));
    assert_eq!(device.physical_bytes(), MIB);
    device.allocate(MIB).unwrap();
    assert_eq!(device.calls(Call::Allocate), 3);
}

#[test]
fn the_nth_call_of_all_fails_whatever_it_is() {
    let device = rig(threaded());
    let before = device.total_calls();
    device.fail_nth_call(3, ErrorKind::Refused);
    let memory = device.allocate(8).unwrap();
    let event = device.create_event().unwrap();
    assert_eq!(device.free(memory).unwrap_err().kind(), ErrorKind::Refused);
    device.free(memory).unwrap();
    device.destroy_event(event).unwrap();
    assert_eq!(device.total_calls() - before, 5);
}

#[test]
fn failures_are_a_devices_own_and_can_be_cleared() {
    let [device, other] = rigs(threaded().devices(2));
    device.fail_next(Call::Allocate, 1, ErrorKind::OutOfMemory);
    other.allocate(8).unwrap();
    device.clear_failures();
    device.allocate(8).unwrap();
}
