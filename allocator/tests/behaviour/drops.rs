//! Failures that no call can report: in destructors, and between a free and the next use.

use cachette::hal::{Call, ErrorKind};
use cachette_hal_host::Live;

use crate::fixture::{KIB, MIB, TestAllocator, let_pass};

/// An allocator that holds a little of everything: unused segments of two streams, memory that waits for
/// another stream, memory behind a wait, and idle events.
fn full_allocator() -> TestAllocator {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let blocks = [KIB, 12 * MIB, 14 * MIB].map(|bytes| test.allocate(bytes, &stream));
    drop(blocks);
    drop((test.allocate(KIB, &side), test.allocate(3 * MIB, &side)));
    let waiting = test.allocate(16 * MIB, &stream);
    waiting.record_stream(&side);
    drop(waiting);
    let behind = test.allocate(18 * MIB, &side);
    behind.release_after(&[&stream]).expect("nothing fails yet");
    test
}

/// What a call can lose by failing.
fn lost(call: Call) -> Live {
    let mut lost = Live::default();
    match call {
        Call::Free => lost.allocations = 1,
        Call::DestroyEvent => lost.events = 1,
        Call::DestroyStream => lost.streams = 1,
        _ => {}
    }
    lost
}

#[test]
fn a_drop_loses_at_most_what_the_failing_call_was_to_free() {
    let mut complaints = Vec::new();
    for call in [
        Call::Free,
        Call::DestroyEvent,
        Call::DestroyStream,
        Call::CreateEvent,
        Call::Record,
        Call::Poll,
        Call::Wait,
        Call::Synchronize,
        Call::SynchronizeDevice,
    ] {
        for nth in 1..50 {
            let TestAllocator { device, allocator, .. } = full_allocator();
            let before = device.calls(call);
            device.fail_next(call, nth, ErrorKind::Other);
            drop(allocator);
            let failed = device.calls(call) - before >= nth;
            let left = device.live();
            if !failed {
                assert_eq!(left, Live::default());
                break;
            }
            let may = lost(call);
            let more = left.allocations > may.allocations || left.events > may.events || left.streams > may.streams;
            if more {
                complaints.push(format!("{call} number {nth} failed, and {left:?} were lost"));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn a_late_drop_loses_nothing_if_recording_its_use_fails() {
    for call in [Call::CreateEvent, Call::Record] {
        let (test, [stream, side]) = TestAllocator::new().with_streams();
        let memory = test.allocate(MIB, &stream);
        memory.record_stream(&side);
        let device = test.device.clone();
        drop((stream, side, test));
        device.fail_next(call, 1, ErrorKind::Other);
        drop(memory);
        assert_eq!(device.live(), Live::default(), "{call}");
    }
}

#[test]
fn e2_memory_whose_use_has_no_event_is_not_reused_too_early() {
    for call in [Call::CreateEvent, Call::Record] {
        let test = TestAllocator::new();
        let (stream, side, memory, hold) = test.used_memory(MIB);
        let address = memory.address();
        memory.record_stream(&side);
        test.device.fail_next(call, 1, ErrorKind::Other);
        drop(memory);
        let next = test.allocate(MIB, &stream);
        assert_ne!(next.address(), address);
        let_pass(hold, &side);
        assert_eq!(test.allocate(MIB, &stream).address(), address);
        drop(next);
        test.assert_sound();
    }
}

#[test]
fn released_memory_without_an_event_is_not_reused_too_early() {
    for call in [Call::CreateEvent, Call::Record] {
        let test = TestAllocator::new();
        let (stream, side, memory, hold) = test.used_memory(MIB);
        test.device.fail_next(call, 1, ErrorKind::Other);
        assert!(memory.release_after(&[&side]).is_err());
        let next = test.allocate(MIB, &stream);
        test.fill(&next, 2, &stream);
        let_pass(hold, &side);
        assert_eq!(test.content(&next, &stream), Some(2));
    }
}

#[test]
fn a_wait_that_was_not_queued_is_queued_for_the_next_request() {
    let test = TestAllocator::new();
    let (stream, side, memory, hold) = test.used_memory(MIB);
    let address = memory.address();
    memory.release_after(&[&side]).unwrap();
    test.device.fail_next(Call::StreamWait, 1, ErrorKind::Other);
    assert!(test.allocator.allocate(MIB, &stream).is_err());
    assert_eq!(test.stats().allocation.all.current, 0);
    let next = test.allocate(MIB, &stream);
    assert_eq!(next.address(), address);
    test.fill(&next, 2, &stream);
    let_pass(hold, &side);
    assert_eq!(test.content(&next, &stream), Some(2));
}

#[test]
fn a_segment_that_could_not_be_freed_keeps_its_waits() {
    for call in [Call::CreateEvent, Call::Record] {
        let test = TestAllocator::new();
        let (stream, side, memory, hold) = test.used_memory(12 * MIB);
        memory.release_after(&[&side]).unwrap();
        test.device.fail_next(call, 1, ErrorKind::Other);
        assert!(test.allocator.empty_cache().is_err(), "{call}");
        let next = test.allocate(12 * MIB, &stream);
        test.fill(&next, 2, &stream);
        let_pass(hold, &side);
        assert_eq!(test.content(&next, &stream), Some(2), "the old use came after the new");
    }
}

#[test]
fn t1_a_segment_that_could_not_be_given_back_was_never_gone() {
    let (test, [stream]) = TestAllocator::with("max_split_size_mb:20").with_streams();
    drop(test.allocate(20 * MIB, &stream));
    let before = test.stats();
    for call in [Call::Record, Call::Wait, Call::Free] {
        test.device.fail_next(call, 1, ErrorKind::Other);
        assert!(test.allocator.empty_cache().is_err());
        test.assert_sound();
    }
    let mut after = test.stats();
    assert_eq!(std::mem::take(&mut after.num_sync_all_streams), 3, "each call counts");
    assert_eq!(after, before);
    assert_eq!(test.allocator.empty_cache(), Ok(20 * MIB));
}

#[test]
fn m10_emptying_that_failed_half_way_can_be_finished() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    drop((test.allocate(12 * MIB, &stream), test.allocate(14 * MIB, &stream)));
    drop(test.allocate(16 * MIB, &side));
    test.device.fail_next(Call::Free, 1, ErrorKind::Other);
    assert!(test.allocator.empty_cache().is_err());
    test.assert_sound();
    assert!(test.allocator.empty_cache().is_ok());
    assert_eq!(test.device.physical_bytes(), 0);
}
