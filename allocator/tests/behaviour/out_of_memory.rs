//! A full device: what is released, what is waited for, and that the allocator works after a failure.

use crate::fixture::{MIB, TestAllocator};

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
