//! Events are reused, and polled only while blocks are pending.

use std::sync::Arc;

use cachette::Error;
use cachette::hal::{Call, CaptureMode, ErrorKind};
use cachette_hal::traced::Counts;
use cachette_hal_host::HostConfig;

use crate::fixture::{ELASTIC, KIB, MIB, Stream, TestAllocator, let_pass};

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
    for releases in [false, true] {
        let (test, [stream, side]) = TestAllocator::new().with_streams();
        for _ in 0..500 {
            let memory = test.allocate(KIB, &stream);
            if releases {
                memory.release_after(&[&side]).unwrap();
            } else {
                memory.record_stream(&side);
            }
        }
        assert!(test.device.calls(Call::CreateEvent) <= 2, "{} events", test.device.calls(Call::CreateEvent));
        assert_eq!(test.device.calls(Call::Record), 500);
        assert_eq!(test.device.calls(Call::DestroyEvent), 0);
    }
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
        let_pass(hold, &side);
        drop(test.allocate(KIB, &stream));
    }
    assert_eq!(test.device.live().events, 8);
    test.assert_returns_everything_after((stream, side));
}

#[test]
fn e3_one_streams_waiting_blocks_cost_another_stream_nothing() {
    let (test, [stream, side, busy]) = TestAllocator::new().with_streams();
    drop(test.allocate(KIB, &side));
    let hold = test.free_in_use(test.allocate(KIB, &stream), &busy);
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
fn e3_blocks_become_free_although_later_ones_wait() {
    let (test, [stream, side]) = TestAllocator::on(HostConfig::default().stepped(3), "").with_streams();
    let late = test.allocate(KIB, &stream);
    free_pending(&test, 2, &stream, &[&side]);
    test.device.run_until_idle();
    let hold = test.free_in_use(late, &side);
    for (bytes, active) in [(32 * KIB, 3), (64 * KIB, 2), (32 * KIB, 2), (64 * KIB, 1), (32 * KIB, 1)] {
        drop(test.allocate(bytes, &stream));
        assert_eq!(test.stats().active.all.current, active, "after {bytes} bytes");
    }
    hold.release();
}

#[test]
fn e2_a_free_makes_one_call_per_recorded_stream_and_one_more() {
    for text in ["", ELASTIC] {
        let (test, [stream, one, two, three, four]) = TestAllocator::with(text).with_streams();
        let users = [&one, &two, &three, &four];
        for count in 1..=users.len() {
            let memory = test.allocate(MIB, &stream);
            for user in &users[..count] {
                memory.record_stream(user);
            }
            let creates = test.device.calls(Call::CreateEvent);
            let calls = test.calls_during(|| drop(memory)) - (test.device.calls(Call::CreateEvent) - creates);
            assert!(calls <= count as u64 + 1, "{text}: {calls} calls for {count} streams");
        }
    }
}

#[test]
fn e2_a_hit_marks_the_uses_that_no_call_could_mark_before() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let (memory, other) = (test.allocate(12 * MIB, &stream), test.allocate(2 * MIB, &stream));
    memory.record_stream(&side);
    test.device.fail_next(Call::Record, 1, ErrorKind::Other);
    drop((memory, other));
    assert_eq!(test.stats().active.all.current, 1, "no fence is recorded");
    let mut hit = None;
    assert_eq!(test.calls_of(Call::Record, || hit = Some(test.allocate(2 * MIB, &stream))), 1);
    side.synchronize().unwrap();
    drop(hit);
    drop(test.allocate(2 * MIB, &stream));
    assert_eq!(test.stats().active.all.current, 0);
}

#[test]
fn e7_a_hit_frees_the_memory_of_a_capture_that_has_ended() {
    let (test, [stream, captured]) = TestAllocator::new().with_streams();
    let (memory, other) = (test.allocate(12 * MIB, &stream), test.allocate(2 * MIB, &stream));
    let (pool, capture) = test.capture(&captured);
    memory.record_stream(&captured);
    drop((memory, other));
    drop((capture.end().unwrap(), pool));
    assert_eq!(test.stats().active.all.current, 1);
    drop(test.allocate(2 * MIB, &stream));
    assert_eq!(test.stats().active.all.current, 0);
}

#[test]
fn e2_a_use_is_asked_once_whether_a_capture_has_it() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let (memory, other) = (test.allocate(12 * MIB, &stream), test.allocate(2 * MIB, &stream));
    let hold = test.free_in_use(memory, &side);
    drop(other);
    // Other sizes than the last one: such a hit polls.
    drop(test.allocate(3 * MIB, &stream));
    let asked = test.calls_of(Call::CaptureStatus, || drop(test.allocate(4 * MIB, &stream)));
    let polled = test.calls_of(Call::Poll, || drop(test.allocate(5 * MIB, &stream)));
    assert_eq!((asked, polled), (0, 1));
    drop(hold);
}

#[test]
fn e2_memory_used_in_a_capture_that_was_not_announced_waits_for_its_end() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let memory = test.allocate(12 * MIB, &stream);
    let address = memory.address();
    test.begin_unannounced(&side, CaptureMode::Relaxed);
    memory.record_stream(&side);
    drop(memory);
    let other = test.allocate(12 * MIB, &stream);
    assert_ne!(other.address(), address, "its stream is captured");
    assert!(test.is_captured(&side), "the capture is whole");
    test.end_unannounced(&side);
    test.allocator.empty_cache().unwrap();
    test.allocator.empty_cache().unwrap();
    assert_eq!(test.stats().active.all.current, 1, "only the other block is left");
}

#[test]
fn e2_a_request_short_of_memory_waits_for_no_capture() {
    for text in ["", ELASTIC] {
        let (test, [stream, side]) = TestAllocator::of(32 * MIB, text).with_streams();
        let memory = [(); 2].map(|()| test.allocate(12 * MIB, &stream));
        test.begin_unannounced(&side, CaptureMode::Relaxed);
        for memory in memory {
            memory.record_stream(&side);
        }
        let error = test.allocator.allocate(24 * MIB, &stream).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory(_)), "{text}: {error}");
        assert!(test.is_captured(&side), "{text}: the capture is whole");
        test.end_unannounced(&side);
        assert!(test.allocator.allocate(24 * MIB, &stream).is_ok(), "{text}");
    }
}
