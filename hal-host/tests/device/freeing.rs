//! A `free` that does not wait for work.

use cachette_hal::{CaptureMode, Device, DevicePtr, ErrorKind, Ordinal, PeerAccess, StreamRef, Transfer};
use cachette_hal_host::HostConfig;

use crate::rig::{MIB, Rig, rig, rigs, stepped, threaded};

const STREAM: StreamRef = StreamRef::DEFAULT;

/// Something that uses the first memory; the second is another's.
type Use = fn(&Rig, DevicePtr, DevicePtr);

const USES: [Use; 5] = [
    |device, used, _| device.fill(used.add(64), 1, 64, STREAM).unwrap(),
    |device, used, other| device.copy(other, used, 64, STREAM).unwrap(),
    |device, used, other| device.copy(used, other, 64, STREAM).unwrap(),
    |device, used, _| {
        let from = [1_u8; 64].as_slice();
        let from = Box::leak(from.to_vec().into_boxed_slice());
        // SAFETY: 1. and 3. the device looks both up. 4. The bytes are leaked.
        unsafe { device.upload(used, from.as_ptr(), 64, STREAM) }.unwrap();
    },
    |device, used, _| {
        let stream = device.stream();
        device.begin_capture(stream.borrow(), CaptureMode::Relaxed).unwrap();
        device.fill(used, 1, 64, stream.borrow()).unwrap();
        let graph = device.end_capture(stream.borrow()).unwrap();
        device.launch(&graph, STREAM).unwrap();
    },
];

fn configs() -> [HostConfig; 2] {
    [threaded(), stepped(7)].map(HostConfig::free_without_waiting)
}

fn is_faulty(device: &Rig) -> bool {
    let answer = device.memory_info();
    answer.is_err_and(|error| error.kind() == ErrorKind::Fault)
}

#[test]
fn it_returns_while_a_stream_is_held() {
    for config in configs() {
        let device = rig(config);
        let (memory, other) = (device.allocate(MIB).unwrap(), device.allocate(MIB).unwrap());
        let hold = device.hold(STREAM).unwrap();
        device.fill(other, 1, MIB, STREAM).unwrap();
        device.free(memory).unwrap();
        assert_eq!(device.physical_bytes(), MIB);
        hold.release();
        device.synchronize(STREAM).unwrap();
        assert_eq!(device.read(other, 1), [1], "its neighbour was not freed");
    }
}

#[test]
fn freed_memory_that_queued_work_uses_is_a_fault() {
    for config in configs() {
        for use_it in USES {
            let device = rig(config.clone());
            let (memory, other) = (device.allocate(MIB).unwrap(), device.allocate(MIB).unwrap());
            let hold = device.hold(STREAM).unwrap();
            use_it(&device, memory, other);
            assert!(!is_faulty(&device));
            device.free(memory).unwrap();
            assert!(is_faulty(&device));
            drop(hold);
        }
    }
}

#[test]
fn memory_whose_work_has_finished_is_freed_in_peace() {
    for config in configs() {
        for use_it in USES {
            let device = rig(config.clone());
            let (memory, other) = (device.allocate(MIB).unwrap(), device.allocate(MIB).unwrap());
            use_it(&device, memory, other);
            device.synchronize(STREAM).unwrap();
            let hold = device.hold(STREAM).unwrap();
            device.free(memory).unwrap();
            device.free(other).unwrap();
            assert!(!is_faulty(&device));
            drop(hold);
        }
    }
}

#[test]
fn the_fault_is_that_of_the_device_whose_work_it_is() {
    let [device, peer] = rigs(threaded().devices(2).free_without_waiting());
    peer.enable_peer(Ordinal(0)).unwrap();
    let memory = device.allocate(MIB).unwrap();
    let hold = peer.hold(STREAM).unwrap();
    peer.fill(memory, 1, MIB, STREAM).unwrap();
    device.free(memory).unwrap();
    assert!(is_faulty(&peer) && !is_faulty(&device));
    drop(hold);
}
