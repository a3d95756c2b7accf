//! Events are reused, and polled only while blocks are pending.

use std::sync::Arc;

use cachette::hal::Call;
use cachette_hal_host::HostConfig;
use cachette_hal_testing::traced::Counts;

use crate::fixture::{KIB, MIB, TestAllocator};

#[test]
fn s10_a_hit_makes_no_driver_call() {
    let counts = Arc::new(Counts::new());
    let (test, [stream]) = TestAllocator::traced(HostConfig::default(), "", Arc::clone(&counts)).with_streams();
    let sizes = [1, 512, 700 * KIB, 3 * MIB, 12 * MIB];
    for bytes in sizes {
        drop(test.allocate(bytes, &stream));
    }
    let before = counts.total();
    for bytes in sizes.into_iter().cycle().take(1000) {
        drop(test.allocate(bytes, &stream));
    }
    assert_eq!(counts.total(), before, "{counts}");
    assert_eq!(counts.of(Call::Poll), 0);
    assert_eq!(counts.of(Call::CreateEvent), 0);
}

#[test]
fn e4_events_are_used_again() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    for _ in 0..500 {
        let memory = test.allocate(KIB, &stream);
        memory.record_stream(&side);
    }
    assert!(test.device.calls(Call::CreateEvent) <= 2, "{} events", test.device.calls(Call::CreateEvent));
    assert_eq!(test.device.calls(Call::Record), 500);
    assert_eq!(test.device.calls(Call::DestroyEvent), 0);
}

#[test]
fn e4_there_are_as_many_events_as_uses_wait_at_once() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    for _ in 0..10 {
        let hold = test.hold(&side);
        let blocks: Vec<_> = (0..8).map(|_| test.allocate(KIB, &stream)).collect();
        for block in blocks {
            block.record_stream(&side);
        }
        hold.release();
        side.synchronize().unwrap();
        drop(test.allocate(KIB, &stream));
    }
    assert_eq!(test.device.live().events, 8);
    drop((stream, side));
    test.assert_returns_everything();
}

#[test]
fn e3_nothing_is_asked_when_nothing_waits() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let memory = test.allocate(KIB, &stream);
    memory.record_stream(&side);
    drop(memory);
    drop(test.allocate(KIB, &stream));
    let calls = test.calls_during(|| {
        for bytes in [KIB, 2 * KIB, 100 * KIB, KIB] {
            drop(test.allocate(bytes, &stream));
        }
    });
    assert_eq!(calls, 0);
}

#[test]
fn e3_one_streams_waiting_blocks_cost_another_stream_nothing() {
    let (test, [stream, side, busy]) = TestAllocator::new().with_streams();
    drop(test.allocate(KIB, &side));
    let memory = test.allocate(KIB, &stream);
    let hold = test.hold(&busy);
    memory.record_stream(&busy);
    drop(memory);
    assert_eq!(test.calls_during(|| drop(test.allocate(KIB, &side))), 0);
    hold.release();
}
