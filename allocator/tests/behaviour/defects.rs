//! Where the reference fails and this allocator does not.

use cachette::Error;
use cachette::hal::Call;
use cachette_hal_host::HostConfig;

use crate::fixture::threads::{in_time, is_waiting, start};
use crate::fixture::{Allocation, MIB, Stream, TestAllocator};

/// Frees `memory` while `side` still has work for it.
fn free_in_use(test: &TestAllocator, memory: Allocation, side: &Stream) {
    test.fill(&memory, 1, side);
    memory.record_stream(side);
    drop(memory);
}

#[test]
fn d1_a_block_that_came_free_while_waiting_serves_the_request() {
    let (test, [stream, side]) = TestAllocator::of(20 * MIB, "").with_streams();
    let live = test.allocate(9 * MIB, &stream);
    let waiting = test.allocate(9 * MIB, &stream);
    let address = waiting.address();
    let hold = test.hold(&side);
    free_in_use(&test, waiting, &side);
    let (allocator, on) = (test.allocator.clone(), stream.clone());
    let next = start(move || allocator.allocate(9 * MIB, &on));
    assert!(is_waiting(&next));
    hold.release();
    // The segment cannot be given back, since a part of it is live: only the pool can serve.
    assert_eq!(next.recv().unwrap().unwrap().address(), address);
    assert_eq!(test.stats().num_ooms, 0);
    drop(live);
    test.assert_sound();
}

#[test]
fn d1_neighbours_that_come_free_together_serve_the_request() {
    let (test, [stream, left, right]) = TestAllocator::of(20 * MIB, "").with_streams();
    let first = test.allocate(9 * MIB, &stream);
    let second = test.allocate(9 * MIB, &stream);
    let start_at = first.address();
    let holds = (test.hold(&left), test.hold(&right));
    free_in_use(&test, first, &left);
    free_in_use(&test, second, &right);
    let (allocator, on) = (test.allocator.clone(), stream.clone());
    let next = start(move || allocator.allocate(18 * MIB, &on));
    holds.0.release();
    assert!(is_waiting(&next));
    holds.1.release();
    assert_eq!(next.recv().unwrap().unwrap().address(), start_at);
}

#[test]
fn d1_a_segment_freed_on_another_stream_is_released_and_serves() {
    let (test, [stream, owner, side]) = TestAllocator::of(24 * MIB, "").with_streams();
    let memory = test.allocate(20 * MIB, &owner);
    let hold = test.hold(&side);
    free_in_use(&test, memory, &side);
    let (allocator, on) = (test.allocator.clone(), stream.clone());
    let next = start(move || allocator.allocate(20 * MIB, &on));
    assert!(is_waiting(&next));
    hold.release();
    assert!(next.recv().unwrap().is_ok());
    assert_eq!(test.stats().num_ooms, 0);
}

#[test]
fn d2_of_several_segments_only_the_sufficient_one_is_waited_for() {
    let (test, [stream, stuck]) =
        TestAllocator::on(HostConfig::default().capacity(40 * MIB).stepped(7), "").with_streams();
    let quick = [test.stream(), test.stream()];
    let halves = [test.allocate(9 * MIB, &stream), test.allocate(9 * MIB, &stream)];
    let whole = test.allocate(20 * MIB, &stream);
    let address = halves[0].address();
    for (half, side) in halves.into_iter().zip(&quick) {
        free_in_use(&test, half, side);
    }
    let hold = test.hold(&stuck);
    free_in_use(&test, whole, &stuck);
    let next = test.allocator.allocate(18 * MIB, &stream).unwrap();
    assert_eq!(next.address(), address);
    hold.release();
    test.device.run_until_idle();
}

#[test]
fn d2_a_block_that_is_stuck_does_not_delay_a_later_one() {
    let (test, [stream, quick, stuck]) = TestAllocator::of(24 * MIB, "").with_streams();
    let (first, second) = (test.allocate(12 * MIB, &stream), test.allocate(12 * MIB, &stream));
    let address = second.address();
    let (forever, briefly) = (test.hold(&stuck), test.hold(&quick));
    free_in_use(&test, first, &stuck);
    free_in_use(&test, second, &quick);
    let (allocator, on) = (test.allocator.clone(), stream.clone());
    let next = start(move || allocator.allocate(12 * MIB, &on));
    assert!(is_waiting(&next));
    briefly.release();
    let next = in_time(move || next.recv().unwrap().unwrap().address());
    forever.release();
    assert_eq!(next, Some(address), "the request waits for the stuck stream");
}

#[test]
fn d2_a_request_that_may_not_block_fails_instead_of_waiting() {
    let (test, [stream, side]) = TestAllocator::of(24 * MIB, "never_block:True").with_streams();
    let memory = test.allocate(20 * MIB, &stream);
    let address = memory.address();
    let hold = test.hold(&side);
    free_in_use(&test, memory, &side);
    let (allocator, on) = (test.allocator.clone(), stream.clone());
    let failed = in_time(move || allocator.allocate(20 * MIB, &on).map(drop));
    hold.release();
    let Some(Err(Error::OutOfMemory(report))) = failed else { panic!("{failed:?}") };
    assert!(report.never_block);
    assert_eq!(report.pending, 20 * MIB);
    let message = report.to_string();
    assert!(message.contains("never_block"), "{message}");
    assert_eq!(test.device.calls(Call::Wait), 0);
    assert_eq!(test.stats().num_sync_all_streams, 0);
    // What has passed meanwhile is found without waiting.
    side.synchronize().unwrap();
    assert_eq!(test.allocate(20 * MIB, &stream).address(), address);
}

#[test]
fn d2_without_blocking_the_cache_still_serves_and_still_grows() {
    let (test, [stream]) = TestAllocator::with("never_block:True").with_streams();
    let address = test.allocate(12 * MIB, &stream).address();
    assert_eq!(test.allocate(12 * MIB, &stream).address(), address);
    assert_ne!(test.allocate(14 * MIB, &stream).address(), address);
    assert_eq!(test.stats().num_ooms, 0);
}
