//! Sums and counts: what resets them, and what counts as oversize.

use crate::fixture::{MIB, TestAllocator, config};

#[test]
fn t5_resetting_peaks_makes_them_the_present() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let kept = test.allocate(MIB, &stream);
    drop(test.allocate(12 * MIB, &stream));
    assert_eq!(test.stats().allocated_bytes.all.peak, 13 * MIB);
    test.allocator.reset_peaks();
    let stats = test.stats();
    for (name, array) in stats.arrays() {
        for stat in [array.all, array.small_pool, array.large_pool] {
            assert_eq!(stat.peak, stat.current, "{name}");
        }
    }
    assert_eq!(stats.allocated_bytes.all.allocated, 13 * MIB);
    drop(test.allocate(2 * MIB, &stream));
    assert_eq!(test.stats().allocated_bytes.all.peak, 3 * MIB);
    drop(kept);
}

#[test]
fn t5_resetting_totals_zeroes_sums_and_counts_alone() {
    let (test, [stream, side]) = TestAllocator::of(64 * MIB, "").with_streams();
    let kept = test.allocate(MIB, &stream);
    drop(test.allocate(40 * MIB, &stream));
    drop(test.allocate(50 * MIB, &side));
    assert!(test.allocator.allocate(100 * MIB, &stream).is_err());
    let before = test.stats();
    assert!(before.num_ooms > 0 && before.num_alloc_retries > 0 && before.num_device_free > 0);
    test.allocator.reset_totals();
    let after = test.stats();
    for ((name, then), (_, now)) in before.arrays().into_iter().zip(after.arrays()) {
        assert_eq!(then.all.current, now.all.current, "{name}");
        assert_eq!(then.all.peak, now.all.peak, "{name}");
        assert_eq!((now.all.allocated, now.all.freed), (0, 0), "{name}");
    }
    let counts = [
        after.num_ooms,
        after.num_alloc_retries,
        after.num_device_alloc,
        after.num_device_free,
        after.num_sync_all_streams,
        after.num_oom_rejections,
    ];
    assert_eq!(counts, [0; 6]);
    drop(kept);
    let freed = test.stats().allocated_bytes.all;
    assert_eq!((freed.allocated, freed.freed), (0, MIB));
}

#[test]
fn t2_allocations_and_segments_from_the_bound_on_are_oversize() {
    let (test, [stream]) = TestAllocator::with("max_split_size_mb:32").with_streams();
    assert_eq!(test.stats().max_split_size, 32 * MIB);
    let below = test.allocate(30 * MIB, &stream);
    let stats = test.stats();
    assert_eq!(stats.oversize_allocations.allocated, 0);
    assert_eq!(stats.oversize_segments.allocated, 0);
    let at = test.allocate(32 * MIB, &stream);
    let above = test.allocate(40 * MIB, &stream);
    let stats = test.stats();
    assert_eq!(stats.oversize_allocations.current, 2);
    assert_eq!(stats.oversize_segments.current, 2);
    drop((below, at, above));
    let stats = test.stats();
    assert_eq!((stats.oversize_allocations.current, stats.oversize_allocations.peak), (0, 2));
    assert_eq!(stats.oversize_segments.current, 2);
    test.allocator.empty_cache().unwrap();
    let stats = test.stats();
    assert_eq!((stats.oversize_segments.current, stats.oversize_segments.freed), (0, 2));
    test.allocator.reset_peaks();
    test.allocator.reset_totals();
    assert_eq!(test.stats().oversize_segments, cachette::Stat::default());
    assert_eq!(test.stats().oversize_allocations, cachette::Stat::default());
}

#[test]
fn t2_the_bound_that_is_reported_is_the_one_at_the_start() {
    let test = TestAllocator::with("max_split_size_mb:64");
    test.allocator.set_config(&config("max_split_size_mb:32"));
    assert_eq!(test.stats().max_split_size, 64 * MIB);
    assert_eq!(TestAllocator::new().stats().max_split_size, u64::MAX);
}

#[test]
fn t2_an_oversize_block_that_waits_is_no_longer_allocated() {
    let (test, [stream, side]) = TestAllocator::with("max_split_size_mb:32").with_streams();
    let hold = test.free_in_use(test.allocate(32 * MIB, &stream), &side);
    let stat = test.stats().oversize_allocations;
    assert_eq!((stat.current, stat.allocated, stat.freed), (0, 1, 1));
    hold.release();
}

#[test]
fn t2_every_emptying_counts_as_a_wait_for_all_streams() {
    let test = TestAllocator::new();
    for count in 1..4 {
        test.allocator.empty_cache().unwrap();
        assert_eq!(test.stats().num_sync_all_streams, count);
    }
}
