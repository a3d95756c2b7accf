//! The end of devices: nothing is left, and nothing hangs.

use std::sync::mpsc;
use std::time::Duration;

use cachette_hal::owned::{OwnedBacking, OwnedEvent, OwnedMemory, OwnedReservation, OwnedStream};
use cachette_hal::{Device, Sharing, VirtualMemory};
use cachette_hal_host::Live;

use crate::rig::{MIB, rig, stepped, threaded};

#[test]
fn owners_leave_nothing_behind() {
    let device = rig(threaded());
    {
        let _memory = OwnedMemory::allocate(&*device, MIB).unwrap();
        let stream = OwnedStream::create(&*device).unwrap();
        let event = OwnedEvent::create(&*device).unwrap();
        event.record(&stream).unwrap();
        let chunk = device.granularity().minimum;
        let addresses = OwnedReservation::reserve(&*device, 2 * chunk).unwrap();
        let backing = OwnedBacking::create(&*device, chunk, Sharing::Private).unwrap();
        let _mapping = addresses.map(chunk, &backing).unwrap();
        let live = device.live();
        assert_eq!((live.allocations, live.streams, live.events), (1, 1, 1));
        assert_eq!((live.reservations, live.backings, live.mappings), (1, 1, 1));
        assert_eq!(device.physical_bytes(), MIB + chunk);
    }
    assert_eq!(device.live(), Live::default());
    assert_eq!(device.physical_bytes(), 0);
}

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
fn a_device_keeps_its_backend() {
    let device = rig(threaded());
    let clone = device.clone();
    let memory = device.allocate(8).unwrap();
    drop(device);
    let stream = clone.stream();
    clone.fill(memory, 4, 8, stream.borrow()).unwrap();
    assert_eq!(clone.read_on(memory, 8, stream.borrow()).unwrap(), [4; 8]);
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

#[test]
fn a_destroyed_stream_finishes_and_its_thread_ends() {
    let device = rig(threaded());
    let memory = device.allocate(64).unwrap();
    for i in 0..64_u8 {
        let stream = device.stream();
        let hold = device.hold(stream.borrow()).unwrap();
        let at = memory.add(u64::from(i));
        device.fill(at, i + 1, 1, stream.borrow()).unwrap();
        device.destroy_stream(stream).unwrap();
        hold.release();
    }
    device.synchronize_device().unwrap();
    let expected: Vec<_> = (1..=64).collect();
    assert_eq!(device.read(memory, 64), expected);
    assert_eq!(device.live().streams, 0);
}
