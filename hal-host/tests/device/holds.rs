//! Holds: a stream kept at a known point, with threads and without.

use cachette_hal::{Device, ErrorKind, Progress, StreamRef};

use crate::rig::{rig, stepped, threaded};

#[test]
fn what_is_behind_a_hold_waits_and_other_streams_do_not() {
    for config in [threaded(), stepped(9)] {
        let device = rig(config);
        let memory = device.allocate(16).unwrap();
        let (busy, free) = (device.stream(), device.stream());
        let (event, passed) = (device.event(), device.event());
        let hold = device.hold(busy.borrow()).unwrap();
        device.fill(memory, 1, 8, busy.borrow()).unwrap();
        device.record(&event, busy.borrow()).unwrap();
        device.fill(memory.add(8), 2, 8, free.borrow()).unwrap();
        device.record(&passed, free.borrow()).unwrap();
        device.wait(&passed).unwrap();
        assert_eq!(device.poll(&event), Ok(Progress::Pending));
        assert_eq!(device.read_on(memory, 8, free.borrow()).unwrap(), [0; 8]);
        hold.release();
        device.wait(&event).unwrap();
        assert_eq!(device.read(memory, 8), [1; 8]);
    }
}

#[test]
fn a_dropped_hold_lets_go() {
    let device = rig(threaded());
    let stream = device.stream();
    drop(device.hold(stream.borrow()).unwrap());
    device.synchronize(stream.borrow()).unwrap();
}

#[test]
fn several_holds_of_a_stream_count_each() {
    let device = rig(stepped(1));
    let (stream, event) = (device.stream(), device.event());
    let first = device.hold(stream.borrow()).unwrap();
    let second = device.hold(stream.borrow()).unwrap();
    device.record(&event, stream.borrow()).unwrap();
    second.release();
    device.run_until_idle();
    assert_eq!(device.poll(&event), Ok(Progress::Pending));
    first.release();
    device.run_until_idle();
    assert_eq!(device.poll(&event), Ok(Progress::Done));
}

#[test]
fn a_hold_needs_a_stream() {
    let device = rig(threaded());
    for raw in [1, 0xdead] {
        let error = device.hold(StreamRef::from_raw(raw)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidHandle);
    }
}
