//! A full device: what is released, what is waited for, and that the allocator works after a failure.

use crate::fixture::threads::{is_waiting, start};
use crate::fixture::{KIB, MIB, TestAllocator};

#[test]
fn m10_memory_cached_for_one_stream_is_given_back_for_another() {
    let test = TestAllocator::of(64 * MIB, "");
    let streams = test.streams::<4>();
    for stream in streams.iter().cycle().take(20) {
        drop(test.allocate(50 * MIB, stream));
    }
    let stats = test.stats();
    assert_eq!((stats.segment.all.current, stats.num_ooms), (1, 0));
    assert_eq!(stats.num_alloc_retries, 19);
    test.assert_sound();
}

#[test]
fn m18_after_exhaustion_work_goes_on() {
    let (test, [stream]) = TestAllocator::of(64 * MIB, "").with_streams();
    let memory = test.allocate(MIB, &stream);
    test.fill(&memory, 5, &stream);
    for _ in 0..10 {
        assert!(test.allocator.allocate(100 * MIB, &stream).is_err());
    }
    assert_eq!(test.content(&memory, &stream), Some(5));
    assert_eq!(test.stats().num_ooms, 10);
    let more = test.allocate(60 * MIB, &stream);
    test.fill(&more, 6, &stream);
    assert_eq!(test.content(&more, &stream), Some(6));
    drop((memory, more));
    test.assert_sound();
}

#[test]
fn waiting_blocks_are_reclaimed_instead_of_running_out() {
    let (test, [stream, side]) = TestAllocator::of(64 * MIB, "").with_streams();
    for byte in 0..60 {
        let memory = test.allocate(12 * MIB, &stream);
        test.fill(&memory, byte, &side);
        memory.record_stream(&side);
    }
    assert_eq!(test.stats().num_ooms, 0);
    // As many segments as there is room for, and each of them was used again and again.
    assert_eq!(test.stats().num_device_alloc, 5);
    side.synchronize().unwrap();
    test.assert_sound();
}

#[test]
fn no_live_byte_is_overwritten_when_pending_blocks_are_reused() {
    let (test, [stream, side]) = TestAllocator::of(48 * MIB, "").with_streams();
    let hold = test.hold(&side);
    let waiting: Vec<_> = (0..3).map(|_| test.allocate(12 * MIB, &stream)).collect();
    let live = test.allocate(12 * MIB, &stream);
    test.fill(&live, 9, &stream);
    for memory in waiting {
        test.fill(&memory, 1, &side);
        memory.record_stream(&side);
    }
    let (allocator, on) = (test.allocator.clone(), stream.clone());
    let next = start(move || allocator.allocate(12 * MIB, &on));
    assert!(is_waiting(&next));
    hold.release();
    let next = next.recv().unwrap().unwrap();
    test.fill(&next, 2, &stream);
    side.synchronize().unwrap();
    assert_eq!(test.content(&next, &stream), Some(2));
    assert_eq!(test.content(&live, &stream), Some(9));
    assert!(test.stats().num_sync_all_streams > 0);
}

#[test]
fn small_requests_survive_a_full_device() {
    let (test, [stream]) = TestAllocator::of(22 * MIB, "").with_streams();
    let large = test.allocate(20 * MIB, &stream);
    let small: Vec<_> = (0..2048).map(|_| test.allocate(KIB, &stream)).collect();
    assert!(test.allocator.allocate(512, &stream).is_err());
    drop(small);
    assert!(test.allocator.allocate(512, &stream).is_ok());
    drop(large);
    test.assert_sound();
}
