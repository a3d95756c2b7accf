//! Devices whose driver waits for the default stream when it maps memory: a request does not wait if it need not, and
//! never makes others wait.

use std::sync::{Arc, Mutex};

use cachette::Notice;
use cachette::hal::{Call, StreamRef};
use cachette::sleep::Contents;
use cachette_hal_host::{Hold, HostConfig};

use crate::fixture::threads::{PATIENCE, in_time, is_waiting, start};
use crate::fixture::{MIB, TestAllocator};

/// An allocator with elastic segments on a device of 64 MiB, whose default stream is busy while the hold lives.
fn busy(further: &str) -> (TestAllocator, Hold) {
    let host = HostConfig::default().capacity(64 * MIB).mapping_with_wait();
    let test = TestAllocator::on(host, &format!("expandable_segments:True{further}"));
    let hold = test.device.hold(StreamRef::DEFAULT).expect("the default stream takes work");
    (test, hold)
}

#[test]
fn a_request_gets_a_direct_segment_instead_of_a_wait_for_the_default_stream() {
    let (test, hold) = busy("");
    let stream = test.stream();
    let noticed: Arc<Mutex<Vec<Notice>>> = Arc::default();
    let log = Arc::clone(&noticed);
    test.allocator.on_notice(move |notice| {
        if !matches!(notice, Notice::Mapped { .. }) {
            log.lock().expect("no test failed in it").push(*notice);
        }
    });
    let mapped = test.calls_of(Call::Map, || {
        let direct = test.allocate(8 * MIB, &stream);
        test.fill(&direct, 7, &stream);
        assert_eq!(test.content(&direct, &stream), Some(7));
    });
    assert_eq!(mapped, 0);
    assert_eq!(*noticed.lock().unwrap(), [Notice::DirectSegment { bytes: 20 * MIB }]);
    drop(hold);
    // The thread of the default stream may be late on a busy machine.
    let maps = (0..1000).any(|_| {
        test.allocator.empty_cache().expect("the device frees memory");
        test.calls_of(Call::Map, || drop(test.allocate(30 * MIB, &stream))) > 0
    });
    assert!(maps, "an idle default stream is no reason for direct segments");
    test.assert_returns_everything_after(stream);
}

#[test]
fn freed_direct_segments_serve_the_next_request() {
    let (test, hold) = busy("");
    let stream = test.stream();
    let address = test.allocate(8 * MIB, &stream).address();
    let allocated = test.calls_of(Call::Allocate, || assert_eq!(test.allocate(8 * MIB, &stream).address(), address));
    assert_eq!(allocated, 0);
    test.assert_returns_everything_after((hold, stream));
}

#[test]
fn a_request_without_room_waits_alone() {
    let (test, hold) = busy("");
    drop(hold);
    let [large, small] = test.streams();
    drop(test.allocate(40 * MIB, &large));
    let hold = test.device.hold(StreamRef::DEFAULT).expect("the default stream takes work");
    let (allocator, stream) = (test.allocator.clone(), large.clone());
    let waiting = start(move || allocator.allocate(44 * MIB, &stream).is_ok());
    assert!(is_waiting(&waiting), "a direct segment of that size does not fit");
    let (allocator, stream) = (test.allocator.clone(), small.clone());
    let served = in_time(move || allocator.allocate(4 * MIB, &stream).is_ok());
    assert_eq!(served, Some(true), "there is room for the other request");
    drop(hold);
    assert_eq!(waiting.recv_timeout(PATIENCE), Ok(true));
    test.assert_returns_everything_after((large, small));
}

#[test]
fn a_request_that_must_not_block_fails_instead_of_a_wait() {
    let (test, hold) = busy(",never_block:True");
    let stream = test.stream();
    let refused = test.allocator.allocate(65 * MIB, &stream);
    assert!(refused.is_err());
    test.assert_returns_everything_after((refused, hold, stream));
}

#[test]
fn a_pool_keeps_to_elastic_segments() {
    let (test, hold) = busy("");
    let (pool, stream) = (Arc::new(test.allocator.create_pool()), test.stream());
    let (used, on) = (Arc::clone(&pool), stream.clone());
    let waiting = start(move || used.allocate(4 * MIB, &on).map(drop).is_ok());
    assert!(is_waiting(&waiting), "a pool with direct segments could not sleep");
    drop(hold);
    assert_eq!(waiting.recv_timeout(PATIENCE), Ok(true));
    pool.sleep(Contents::Discard).expect("it has elastic segments only");
    pool.wake().expect("there is memory");
    test.assert_returns_everything_after((pool, stream));
}
