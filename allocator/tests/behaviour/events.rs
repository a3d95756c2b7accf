//! Events are reused, and polled only while blocks are pending.

use std::sync::Arc;

use cachette::hal::Call;
use cachette_hal_host::HostConfig;
use cachette_hal_testing::traced::Counts;

use crate::fixture::{KIB, MIB, Stream, TestAllocator};

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

#[test]
fn e1_recording_a_use_makes_no_driver_call() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let memory = test.allocate(KIB, &stream);
    let address = test.allocate_raw(KIB, &stream);
    let calls = test.calls_during(|| {
        memory.record_stream(&side);
        // SAFETY: as in `allocate_raw`.
        unsafe { test.allocator.record_stream_raw(address, side.handle()) }.unwrap();
    });
    assert_eq!(calls, 0);
    test.allocator.free_raw(address).unwrap();
}

/// Frees blocks that every stream of `users` uses.
fn free_pending(test: &TestAllocator, count: usize, stream: &Stream, users: &[&Stream]) {
    let blocks: Vec<_> = (0..count).map(|_| test.allocate(KIB, stream)).collect();
    for block in blocks {
        for user in users {
            block.record_stream(user);
        }
    }
}

#[test]
fn e3_a_hit_polls_one_event_a_stream() {
    let (test, [stream, one, two]) = TestAllocator::new().with_streams();
    let holds = [test.hold(&one), test.hold(&two)];
    free_pending(&test, 4, &stream, &[&one, &two]);
    free_pending(&test, 3, &stream, &[&two]);
    drop([test.allocate(64 * KIB, &stream), test.allocate(32 * KIB, &stream)]);
    for bytes in [32 * KIB, 64 * KIB, 32 * KIB] {
        assert_eq!(test.calls_of(Call::Poll, || drop(test.allocate(bytes, &stream))), 2);
    }
    drop(holds);
}

#[test]
fn e3_the_last_freed_block_serves_without_a_driver_call() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let hold = test.hold(&side);
    free_pending(&test, 2, &stream, &[&side]);
    drop(test.allocate(64 * KIB, &stream));
    let calls = test.calls_during(|| {
        for _ in 0..10 {
            drop(test.allocate(64 * KIB, &stream));
        }
    });
    assert_eq!(calls, 0);
    hold.release();
}

#[test]
fn e3_one_poll_frees_all_blocks_that_a_stream_used() {
    let (test, [stream, side]) = TestAllocator::on(HostConfig::default().stepped(3), "").with_streams();
    free_pending(&test, 8, &stream, &[&side]);
    assert_eq!(test.stats().active.all.current, 8);
    test.device.run_until_idle();
    assert_eq!(test.calls_of(Call::Poll, || drop(test.allocate(64 * KIB, &stream))), 1);
    assert_eq!(test.stats().active.all.current, 0);
}

#[test]
fn e3_blocks_become_free_although_later_ones_wait() {
    let (test, [stream, side]) = TestAllocator::on(HostConfig::default().stepped(3), "").with_streams();
    let late = test.allocate(KIB, &stream);
    free_pending(&test, 2, &stream, &[&side]);
    test.device.run_until_idle();
    let hold = test.hold(&side);
    late.record_stream(&side);
    drop(late);
    for (bytes, active) in [(32 * KIB, 3), (64 * KIB, 2), (32 * KIB, 2), (64 * KIB, 1), (32 * KIB, 1)] {
        drop(test.allocate(bytes, &stream));
        assert_eq!(test.stats().active.all.current, active, "after {bytes} bytes");
    }
    hold.release();
}
