//! Allocations, the stream-ordered pool and page-locked memory.

use std::ptr::NonNull;

use cachette_hal::{Backend, Device, ErrorKind, Feature, HostMemory, Ordinal, Reason, StreamRef};
use cachette_hal_host::{HostBackend, HostConfig};

use crate::rig::{MIB, rig, rigs, threaded};

#[test]
fn a_device_is_as_it_was_configured() {
    let config = threaded().devices(3).without(Feature::Capture);
    let backend = HostBackend::new(config).unwrap();
    assert_eq!(backend.device_count(), Ok(3));
    assert_eq!(backend.info().name, "host");
    let device = backend.open(Ordinal(2)).unwrap();
    assert_eq!((device.info().ordinal, device.info().total_memory), (Ordinal(2), 64 * MIB));
    let reason = device.missing(Feature::Capture).unwrap().reason;
    assert_eq!(reason, Reason::SwitchedOff("the host device's configuration"));
    for feature in Feature::ALL.into_iter().filter(|other| *other != Feature::Capture) {
        assert_eq!(device.missing(feature), None);
    }
    let error = backend.open(Ordinal(3)).unwrap_err();
    assert_eq!((error.kind(), error.call()), (ErrorKind::NoSuchDevice, "open"));
}

#[test]
fn an_alignment_beyond_a_page_is_honoured() {
    let device = rig(threaded().base_alignment(MIB));
    for _ in 0..8 {
        assert_eq!(device.allocate(100).unwrap().address() % MIB, 0);
    }
}

#[test]
fn only_what_was_allocated_can_be_freed_and_once() {
    for config in [threaded(), threaded().free_without_waiting()] {
        let [device, other] = rigs(config.devices(2));
        let memory = device.allocate(MIB).unwrap();
        let kind = |result: cachette_hal::Result<()>| result.unwrap_err().kind();
        assert_eq!(kind(device.free(memory.add(4096))), ErrorKind::InvalidValue);
        assert_eq!(kind(other.free(memory)), ErrorKind::InvalidValue);
        device.free(memory).unwrap();
        assert_eq!(kind(device.free(memory)), ErrorKind::InvalidValue);
    }
}

#[test]
fn memory_is_charged_in_pages_up_to_the_capacity() {
    let device = rig(HostConfig::default().capacity(16 * 4096));
    let all: Vec<_> = (0..16).map(|_| device.allocate(1).unwrap()).collect();
    assert_eq!(device.memory_info().unwrap().free, 0);
    let error = device.allocate(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    device.free(all[3]).unwrap();
    device.allocate(1).unwrap();
    assert_eq!(device.allocate(0).unwrap_err().kind(), ErrorKind::InvalidValue);
    assert_eq!(device.allocate(u64::MAX).unwrap_err().kind(), ErrorKind::OutOfMemory);
}

#[test]
fn a_pool_gives_up_other_sizes_before_it_fails() {
    let device = rig(HostConfig::default().capacity(4 * MIB));
    let stream = StreamRef::DEFAULT;
    let small = device.allocate_on(2 * MIB, stream).unwrap();
    device.free_on(small, stream).unwrap();
    device.synchronize(stream).unwrap();
    let large = device.allocate_on(4 * MIB, stream).unwrap();
    let error = device.allocate_on(1, stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    device.free_on(large, stream).unwrap();
}

#[test]
fn host_memory_is_registered_once_and_unregistered_at_its_start() {
    let device = rig(threaded());
    let mut host = vec![5_u8; 64];
    let start = NonNull::new(host.as_mut_ptr()).unwrap();
    let inside = NonNull::new(host[8..].as_mut_ptr()).unwrap();
    // SAFETY: `host` outlives its registration.
    unsafe { device.register(start, 64) }.unwrap();
    // SAFETY: `host` outlives its registration.
    let again = unsafe { device.register(inside, 8) }.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::InvalidValue);
    let memory = device.allocate(8).unwrap();
    let at = device.device_address(inside).unwrap();
    device.copy(memory, at, 8, StreamRef::DEFAULT).unwrap();
    assert_eq!(device.read(memory, 8), [5; 8]);
    // SAFETY: 1. the device looks the address up.
    let wrong = unsafe { device.unregister(inside) }.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::InvalidValue);
    // SAFETY: 1. and 2. registered above, and idle.
    unsafe { device.unregister(start) }.unwrap();
    assert_eq!(device.live().pinned, 0);
}
