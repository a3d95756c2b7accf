//! The memory of a pool: separate, split or not, elastic or not, and used by others under pressure.

use cachette::hal::Call;
use cachette::pool::PoolStats;
use cachette::{Error, PoolOptions};

use crate::fixture::{Allocation, ELASTIC, KIB, MIB, Pool, TestAllocator, assert_consistent, config};

fn stats(pool: &Pool) -> [u64; 4] {
    let PoolStats { allocations, allocated_bytes, segments, reserved_bytes, .. } = pool.stats();
    [allocations, allocated_bytes, segments, reserved_bytes]
}

fn with(test: &TestAllocator, options: PoolOptions) -> Pool {
    test.allocator.create_pool_with(options).expect("its name is new")
}

#[test]
fn p8_two_small_requests_share_a_segment_and_a_third_makes_one() {
    for test in TestAllocator::both("") {
        let stream = test.stream();
        let pool = test.allocator.create_pool();
        let allocate = || pool.allocate(MIB, &stream).expect("there is room");
        let first = [allocate(), allocate()];
        assert_eq!(stats(&pool), [2, 2 * MIB, 1, 2 * MIB]);
        let third = allocate();
        assert_eq!(stats(&pool), [3, 3 * MIB, 2, 4 * MIB]);
        drop((first, third));
        assert_eq!(stats(&pool), [0, 0, 2, 4 * MIB]);
        test.assert_sound();
    }
}

#[test]
fn p8_pools_share_no_memory_wherever_it_is_freed() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let [one, other] = [test.allocator.create_pool(), test.allocator.create_pool()];
    let memory = one.allocate(MIB, &stream).expect("there is room");
    let address = memory.address();
    let inside = other.enter(&stream).expect("it is there");
    drop(memory);
    let apart = test.allocate(MIB, &stream);
    drop(inside);
    let outside = test.allocate(MIB, &stream);
    assert!(apart.address() != address && outside.address() != address);
    let again = one.allocate(MIB, &stream).expect("there is room");
    assert_eq!(again.address(), address, "its own free block serves it");
    assert_eq!([&one, &other].map(stats), [[1, MIB, 1, 2 * MIB]; 2]);
}

#[test]
fn p8_a_pool_that_does_not_split_has_one_block_a_segment() {
    for test in ["", "expandable_segments:True"].into_iter().flat_map(TestAllocator::both) {
        let stream = test.stream();
        let pool = with(&test, PoolOptions::new().no_split(true));
        let allocate = |bytes| pool.allocate(bytes, &stream).expect("there is room");
        let held = [allocate(MIB), allocate(MIB), allocate(512)];
        assert_eq!(pool.stats().segments, 3);
        let addresses = held.each_ref().map(Allocation::address);
        drop(held);
        let again = [allocate(MIB), allocate(MIB), allocate(512)];
        assert_eq!(pool.stats().segments, 3, "whole segments are used again");
        assert!(again.iter().all(|memory| addresses.contains(&memory.address())));
        assert_eq!(test.stats().inactive_split.all.current, 0);
        let ordinary = test.allocator.create_pool();
        let two = [(); 2].map(|()| ordinary.allocate(MIB, &stream).expect("there is room"));
        assert!(ordinary.stats().segments <= 1, "they share a segment; an elastic one may count as none");
        drop((two, again));
        assert_consistent(&test.allocator);
    }
}

#[test]
fn p8_a_pool_may_stop_splitting_while_it_is_used() {
    for test in TestAllocator::both("") {
        let stream = test.stream();
        let pool = test.allocator.create_pool();
        let allocate = || pool.allocate(MIB, &stream).expect("there is room");
        let first = allocate();
        pool.set_no_split(true);
        let later = [allocate(), allocate(), allocate()];
        assert_eq!(pool.stats().segments, 3, "one is the rest of the first");
        pool.set_no_split(false);
        let last = [allocate(), allocate()];
        assert_eq!(pool.stats().segments, 4);
        drop((first, later, last));
        test.assert_sound();
    }
}

#[test]
fn p8_streams_with_elastic_segments_split_on_in_a_pool_that_stops_splitting() {
    let (test, [stream, other]) = TestAllocator::with("expandable_segments:True").with_streams();
    let pool = test.allocator.create_pool();
    let allocate = |stream| pool.allocate(MIB, stream).expect("there is room");
    let segments = || test.device.calls(Call::Allocate);
    let first = allocate(&stream);
    pool.set_no_split(true);
    let later = [allocate(&stream), allocate(&stream)];
    assert_eq!((segments(), pool.stats().reserved_bytes), (0, 4 * MIB));
    let apart = [allocate(&other), allocate(&other)];
    assert_eq!(segments(), 2);
    pool.set_no_split(false);
    let last = [allocate(&other), allocate(&other)];
    assert_eq!(segments(), 3, "both share one");
    drop((first, later, apart, last));
    assert_consistent(&test.allocator);
}

#[test]
fn p8_a_heap_that_is_used_again_splits_as_its_new_pool_says() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    for no_split in [true, false, true, false] {
        let pool = with(&test, PoolOptions::new().no_split(no_split));
        let two = [(); 2].map(|()| pool.allocate(MIB, &stream).expect("there is room"));
        assert_eq!(pool.stats().segments, if no_split { 2 } else { 1 });
        test.allocator.set_config(&config("garbage_collection_threshold:0.9"));
        let third = pool.allocate(MIB, &stream).expect("there is room");
        assert_eq!(pool.stats().segments, if no_split { 3 } else { 2 });
        drop((two, third));
    }
}

#[test]
fn m2_a_pool_that_agreed_to_serves_others_before_they_fail() {
    for test in [TestAllocator::of(40 * MIB, ""), TestAllocator::of(40 * MIB, "expandable_segments:True")] {
        let [stream, other] = test.streams();
        let pool = with(&test, PoolOptions::new().use_on_oom(true));
        let address = pool.allocate(30 * MIB, &stream).expect("there is room").address();
        let served = test.allocate(30 * MIB, &stream);
        assert_eq!(served.address(), address);
        assert_eq!(pool.stats().allocations, 1);
        drop(served);
        pool.set_use_on_oom(false);
        let refused = test.allocator.allocate(30 * MIB, &stream);
        assert!(matches!(refused, Err(Error::OutOfMemory(_))));
        pool.set_use_on_oom(true);
        drop(test.allocate(30 * MIB, &stream));
        if test.allocator.elastic_segments().is_empty() {
            let elsewhere = test.allocator.allocate(30 * MIB, &other);
            assert!(elsewhere.is_err(), "nor a stream whose order it does not know");
        }
    }
}

#[test]
fn m2_a_dropped_pool_serves_no_request_but_its_memory_does() {
    let (test, [stream]) = TestAllocator::of(40 * MIB, "").with_streams();
    let pool = with(&test, PoolOptions::new().use_on_oom(true));
    let kept = pool.allocate(MIB, &stream).expect("there is room");
    drop(pool.allocate(30 * MIB, &stream).expect("there is room"));
    drop(pool);
    assert_eq!(test.device.physical_bytes(), 2 * MIB);
    let memory = test.allocate(30 * MIB, &stream);
    assert!(test.allocator.allocate(MIB, &stream).is_ok());
    assert!(test.allocator.allocate(12 * MIB, &stream).is_err());
    drop((kept, memory));
    test.assert_sound();
}

#[test]
fn m10_a_pool_gives_its_own_unused_memory_for_its_own_requests() {
    let (test, [stream, other]) = TestAllocator::of(40 * MIB, "").with_streams();
    let pool = test.allocator.create_pool();
    drop(pool.allocate(20 * MIB, &stream).expect("there is room"));
    drop(test.allocate(14 * MIB, &stream));
    let memory = pool.allocate(36 * MIB, &other).expect("everything else goes");
    assert_eq!(stats(&pool), [1, 36 * MIB, 1, 36 * MIB]);
    drop(memory);
}

#[test]
fn p10_a_plain_pool_is_elastic_where_the_allocator_is() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let pool = test.allocator.create_pool();
    let memory = pool.allocate(6 * MIB, &stream).expect("there is room");
    test.fill(&memory, 8, &stream);
    assert_eq!(test.content(&memory, &stream), Some(8));
    assert_eq!(pool.stats().segments, 0, "X9: chunks are no segments");
    assert_eq!(pool.stats().reserved_bytes, 6 * MIB);
    let outside = test.allocate(4 * MIB, &stream);
    assert_eq!(pool.stats().reserved_bytes, 6 * MIB);
    test.assert_elastic_sound();
    drop(memory);
    let grown = pool.allocate(10 * MIB, &stream).expect("there is room");
    assert_eq!(pool.stats().reserved_bytes, 10 * MIB, "it grew where it was");
    drop((grown, pool, outside));
    test.device.run_until_idle();
    test.allocator.empty_cache().expect("nothing fails");
    test.assert_elastic_sound();
    assert_eq!(test.device.physical_bytes(), 0);
}

#[test]
fn p10_pools_of_both_kinds_of_segments_follow_each_other() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    for _ in 0..3 {
        let [one, other] = [test.allocator.create_pool(), test.allocator.create_pool()];
        let allocate = |pool: &Pool| pool.allocate(3 * MIB, &stream).expect("there is room");
        let direct = allocate(&one);
        test.allocator.set_config(&config("expandable_segments:True"));
        let elastic = [allocate(&other), allocate(&other)];
        let beside = allocate(&one);
        assert_eq!((one.stats().segments, other.stats().segments), (1, 0));
        test.allocator.set_config(&config(""));
        let addresses = |of: [&Allocation; 2]| of.map(Allocation::address);
        assert!(one.check_live_allocations(&addresses([&direct, &beside])));
        assert!(other.check_live_allocations(&addresses(elastic.each_ref())));
        test.allocator.check().expect("every invariant holds");
    }
    test.allocator.empty_cache().expect("nothing fails");
    test.allocator.empty_cache().expect("nothing fails");
    assert_eq!(test.device.physical_bytes(), 0);
}

#[test]
fn t6_a_pool_has_statistics_that_count_in_the_total() {
    let (test, [stream, other]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_pool();
    assert_eq!(stats(&pool), [0; 4]);
    let memory =
        [pool.allocate(700, &stream).expect("there is room"), pool.allocate(3 * MIB, &other).expect("there is room")];
    let outside = test.allocate(12 * MIB, &stream);
    assert_eq!(stats(&pool), [2, KIB + 3 * MIB, 2, 22 * MIB]);
    let whole = test.stats();
    assert_eq!(whole.allocation.all.current, 3);
    assert_eq!(whole.reserved_bytes.all.current, 34 * MIB);
    drop((memory, outside));
    assert_eq!(stats(&pool), [0, 0, 2, 22 * MIB]);
}

#[test]
fn p11_a_request_of_a_pool_leaves_the_memory_of_another_pool_in_use() {
    for text in ["", ELASTIC] {
        let (test, [stream]) = TestAllocator::of(32 * MIB, text).with_streams();
        let [other, own] = [(); 2].map(|()| test.allocator.create_pool());
        drop(other.allocate(20 * MIB, &stream).expect("there is room"));
        let error = own.allocate(20 * MIB, &stream).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory(_)), "{text}: {error}");
        drop(other);
        own.allocate(20 * MIB, &stream).expect("nothing uses the other pool any more");
    }
}
