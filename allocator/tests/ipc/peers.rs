//! Other devices that may touch an allocator's memory.

use std::sync::{Arc, Mutex, mpsc};

use cachette::hal::{AnyDevice, Call, Device, DevicePtr, ErrorKind, Feature, Ordinal};
use cachette::sleep::Contents;
use cachette::{Allocation, Allocator, Error};
use cachette_hal::traced::DriverCall;
use cachette_hal::traced::Traced;
use cachette_hal_host::{HostBackend, HostConfig, HostDevice};

use crate::bytes::{from_hex, holds, put};
use crate::second::Second;
use crate::threads::{PATIENCE, is_waiting, start};
use crate::{DIRECT, ELASTIC, MIB};

fn devices(host: HostConfig) -> [HostDevice; 2] {
    let backend = HostBackend::new(host.devices(2)).expect("such devices can be made");
    [0, 1].map(|ordinal| backend.device(Ordinal(ordinal)).expect("there are two"))
}

fn allocator(device: &HostDevice, config: &str) -> Allocator {
    let config = config.parse().expect("the configuration is right");
    Allocator::with_config(Arc::new(device.clone()) as AnyDevice, &config)
}

/// X11: whether a device can copy from an address of another device.
fn copies_from(peer: &HostDevice, address: u64, bytes: u64, seed: u64) -> bool {
    let own = allocator(peer, DIRECT);
    let stream = own.create_stream().expect("the device makes streams");
    let memory = own.allocate(bytes, &stream).expect("there is room");
    let to = memory.ptr().expect("it has an address");
    let from = DevicePtr::new(address).expect("there is memory");
    let transfer = peer.transfer().expect("the host device copies");
    // SAFETY: 1. the stream lives. 3. both are live; whether the peer may reach the source is what is asked.
    let queued = unsafe { transfer.copy(to, from, bytes, stream.handle()) };
    let ran = queued.and_then(|()| peer.synchronize_device());
    ran.is_ok() && holds(peer, memory.address(), bytes, seed)
}

/// X10: what there is, and what comes.
#[test]
fn a_peer_reaches_memory_that_was_there_and_memory_that_comes() {
    for config in [DIRECT, ELASTIC] {
        let [one, two] = devices(HostConfig::default());
        let allocator = allocator(&one, config);
        let stream = allocator.create_stream().unwrap();
        let before = allocator.allocate(4 * MIB, &stream).unwrap();
        put(&one, before.address(), before.bytes(), 1);
        assert!(allocator.can_reach(Ordinal(1)).unwrap());
        allocator.allow_peer(&two).unwrap();
        let after = allocator.allocate(40 * MIB, &stream).unwrap();
        put(&one, after.address(), after.bytes(), 2);
        let reaches = |memory: &Allocation, seed| copies_from(&two, memory.address(), memory.bytes(), seed);
        assert!(reaches(&before, 1), "{config}: what was there");
        assert!(reaches(&after, 2), "{config}: what came");
    }
}

#[test]
fn without_leave_a_peer_reaches_nothing() {
    let [one, two] = devices(HostConfig::default());
    let allocator = allocator(&one, ELASTIC);
    let stream = allocator.create_stream().unwrap();
    let memory = allocator.allocate(4 * MIB, &stream).unwrap();
    put(&one, memory.address(), memory.bytes(), 1);
    assert!(!copies_from(&two, memory.address(), memory.bytes(), 1));
}

/// X10: once a pair.
#[test]
fn a_peer_that_may_already_costs_nothing_more() {
    let [one, two] = devices(HostConfig::default());
    let allocator = allocator(&one, ELASTIC);
    let stream = allocator.create_stream().unwrap();
    let _memory = allocator.allocate(4 * MIB, &stream).unwrap();
    allocator.allow_peer(&two).unwrap();
    let calls = one.calls(Call::SetAccess);
    allocator.allow_peer(&two).unwrap();
    assert_eq!(one.calls(Call::SetAccess), calls);
}

#[test]
fn a_peer_reaches_memory_that_has_slept() {
    let [one, two] = devices(HostConfig::default());
    let allocator = allocator(&one, ELASTIC);
    let stream = allocator.create_stream().unwrap();
    let pool = allocator.create_pool();
    let memory = pool.allocate(4 * MIB, &stream).unwrap();
    put(&one, memory.address(), memory.bytes(), 3);
    pool.sleep(Contents::Keep).unwrap();
    allocator.allow_peer(&two).unwrap();
    pool.wake().unwrap();
    assert!(copies_from(&two, memory.address(), memory.bytes(), 3));
}

/// X10: imported ones too.
#[test]
fn a_peer_reaches_what_was_opened_of_another_process() {
    let mut second = Second::start();
    let mut handle = |seed: u64| from_hex(&second.ask(&format!("share {ELASTIC} 4 {seed}")).unwrap());
    let [one, two] = devices(HostConfig::default());
    let allocator = allocator(&one, ELASTIC);
    let before = allocator.open_shared(&handle(4)).unwrap();
    allocator.allow_peer(&two).unwrap();
    let after = allocator.open_shared(&handle(5)).unwrap();
    assert!(copies_from(&two, before.address(), before.bytes(), 4));
    assert!(copies_from(&two, after.address(), after.bytes(), 5));
}

#[test]
fn a_device_out_of_reach_is_refused() {
    let [one, two] = devices(HostConfig::default().peers(false));
    let bound = allocator(&one, ELASTIC);
    assert!(!bound.can_reach(Ordinal(1)).unwrap());
    let error = bound.allow_peer(&two).unwrap_err();
    let (device, peer) = (Ordinal(0), Ordinal(1));
    assert_eq!(error, Error::PeerOutOfReach { device, peer });
    assert!(bound.allow_peer(&one).is_err(), "itself");
    let [one, two] = devices(HostConfig::default().without(Feature::PeerAccess));
    let error = allocator(&one, ELASTIC).allow_peer(&two).unwrap_err();
    assert!(matches!(error, Error::Missing(_)), "{error}");
}

#[test]
fn a_failure_leaves_all_as_it_was_and_may_be_tried_again() {
    let [one, two] = devices(HostConfig::default());
    let allocator = allocator(&one, ELASTIC);
    let stream = allocator.create_stream().unwrap();
    let memory = allocator.allocate(6 * MIB, &stream).unwrap();
    put(&one, memory.address(), memory.bytes(), 1);
    for nth in 1..=3 {
        one.fail_next(Call::SetAccess, nth, ErrorKind::Other);
        assert!(allocator.allow_peer(&two).is_err());
    }
    two.fail_next(Call::EnablePeer, 1, ErrorKind::Other);
    assert!(allocator.allow_peer(&two).is_err());
    let later = allocator.allocate(6 * MIB, &stream).unwrap();
    put(&one, later.address(), later.bytes(), 2);
    allocator.allow_peer(&two).unwrap();
    assert!(copies_from(&two, memory.address(), memory.bytes(), 1));
    assert!(copies_from(&two, later.address(), later.bytes(), 2));
}

#[test]
fn memory_that_comes_after_a_failure_is_out_of_the_peers_reach() {
    let [one, two] = devices(HostConfig::default());
    let allocator = allocator(&one, ELASTIC);
    let stream = allocator.create_stream().unwrap();
    let _before = allocator.allocate(6 * MIB, &stream).unwrap();
    one.fail_next(Call::SetAccess, 1, ErrorKind::Other);
    assert!(allocator.allow_peer(&two).is_err());
    let later = allocator.allocate(40 * MIB, &stream).unwrap();
    put(&one, later.address(), later.bytes(), 1);
    assert!(!copies_from(&two, later.address(), later.bytes(), 1));
}

#[test]
fn a_failure_of_one_thread_does_not_remove_the_peer_of_another() {
    let [one, two] = devices(HostConfig::default());
    let (amid, (tell, told)) = (Arc::new(Mutex::new(None::<Allocator>)), mpsc::channel());
    let (waits, fails, peer) = (Arc::clone(&amid), one.clone(), two.clone());
    let observer = move |call: &DriverCall| {
        let first = if call.call == Call::SetAccess { waits.lock().unwrap().take() } else { None };
        let Some(allocator) = first else { return };
        let peer = peer.clone();
        let answer = start(move || allocator.allow_peer(&peer));
        // The other thread waits for this one, which fails at its next chunk, or has ended.
        is_waiting(&answer);
        fails.fail_next(Call::SetAccess, 1, ErrorKind::Other);
        tell.send(answer).unwrap();
    };
    let config = ELASTIC.parse().unwrap();
    let allocator = Allocator::with_config(Arc::new(Traced::new(one.clone(), observer)) as AnyDevice, &config);
    let stream = allocator.create_stream().unwrap();
    let before = allocator.allocate(6 * MIB, &stream).unwrap();
    put(&one, before.address(), before.bytes(), 1);
    *amid.lock().unwrap() = Some(allocator.clone());
    assert!(allocator.allow_peer(&two).is_err());
    let answer = told.try_recv().expect("access was granted");
    answer.recv_timeout(PATIENCE).expect("it ends").unwrap();
    let after = allocator.allocate(40 * MIB, &stream).unwrap();
    put(&one, after.address(), after.bytes(), 2);
    assert!(copies_from(&two, before.address(), before.bytes(), 1), "what was there");
    assert!(copies_from(&two, after.address(), after.bytes(), 2), "what came");
}
