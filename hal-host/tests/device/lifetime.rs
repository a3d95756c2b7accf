//! The end of devices: nothing is left, and nothing hangs.

use std::sync::mpsc;
use std::time::Duration;

use cachette_hal::Device;

use crate::rig::{MIB, rig, stepped, threaded};

#[test]
fn a_device_dropped_with_work_queued_does_not_hang() {
    for config in [threaded(), stepped(2)] {
        let device = rig(config);
        let memory = device.allocate(MIB).unwrap();
        let streams: Vec<_> = (0..3).map(|_| device.stream()).collect();
        let event = device.event();
        let hold = device.hold(streams[0].borrow()).unwrap();
        device.record(&event, streams[0].borrow()).unwrap();
        device.stream_wait(streams[1].borrow(), &event).unwrap();
        for stream in &streams {
            device.fill(memory, 1, MIB, stream.borrow()).unwrap();
        }
        drop(device);
        hold.release();
    }
}

#[test]
fn the_last_owner_may_be_dropped_by_a_host_function() {
    let device = rig(threaded());
    let (sender, receiver) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let stream = device.stream();
    let owner = device.clone();
    let call = move || {
        gone.recv().unwrap();
        drop(owner);
        sender.send(()).unwrap();
    };
    device.call_host(stream.borrow(), call).unwrap();
    drop(device);
    go.send(()).unwrap();
    receiver.recv_timeout(Duration::from_secs(60)).unwrap();
}
