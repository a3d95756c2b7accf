//! Graphs' pools in elastic memory, with the figures that PyTorch's programs count on.

use cachette::snapshot::{BlockState, SegmentKind};
use cachette::{PoolOptions, StatArray};

use crate::checkpoints::raw;
use crate::fixture::{MIB, Pool, Stream, TestAllocator, begin_capture};

/// A pool as PyTorch's graphs get it.
fn graphs_pool(test: &TestAllocator) -> Pool {
    let options = PoolOptions::new().whole_segments(true);
    test.allocator.create_pool_with(options).expect("it is made")
}

/// What is held now for requests of a kind.
fn current(stat: &StatArray, small: bool) -> u64 {
    let row = if small { &stat.small_pool } else { &stat.large_pool };
    row.current
}

/// The large blocks that have memory, by address.
fn large_blocks(test: &TestAllocator) -> Vec<(u64, BlockState)> {
    let snapshot = test.allocator.snapshot();
    let large = snapshot.segments.iter().filter(|it| it.kind == SegmentKind::Large);
    let blocks = large.flat_map(|segment| &segment.blocks);
    blocks.map(|block| (block.bytes / MIB, block.state)).collect()
}

#[test]
fn figures_of_a_graphs_pool_are_pytorchs() {
    // Bytes of a tensor; MiB that its graph holds; MiB once the graph is gone and one tensor is left.
    let cases = [(512, 2, 2), (MIB, 4, 2), (MIB + 512, 20, 20), (10 * MIB - 512, 40, 40), (10 * MIB + 512, 40, 20)];
    for (bytes, with_graph, without) in cases {
        let small = bytes <= MIB;
        let (test, [stream]) = TestAllocator::elastic("").with_streams();
        let input = test.allocate(bytes, &stream);
        let before = test.stats();
        let held = || {
            let stats = test.stats();
            let segments = current(&stats.segment, small) - current(&before.segment, small);
            let active = current(&stats.active, small) - current(&before.active, small);
            let reserved = current(&stats.reserved_bytes, small);
            let reserved = reserved - current(&before.reserved_bytes, small);
            (segments, active, reserved / MIB)
        };
        let pool = graphs_pool(&test);
        let capture = begin_capture(&pool, &stream);
        let mut result = test.allocate(bytes, &stream);
        for _ in 0..5 {
            let copy = test.allocate(bytes, &stream);
            let sum = test.allocate(bytes, &stream);
            drop(copy);
            result = sum;
        }
        let graph = capture.end().expect("it is whole");
        assert_eq!(held(), (0, 1, with_graph), "with the graph, {bytes}");
        test.allocator.empty_cache().expect("nothing fails");
        assert_eq!(held(), (0, 1, with_graph), "it keeps its memory, {bytes}");
        drop((graph, pool));
        test.device.run_until_idle();
        test.allocator.empty_cache().expect("nothing fails");
        assert_eq!(held(), (0, 1, without), "without the graph, {bytes}");
        test.assert_elastic_sound();
        drop((input, result));
    }
}

/// Captures a request of a pool; its address.
fn captured(test: &TestAllocator, pool: &Pool, bytes: u64, stream: &Stream) -> u64 {
    let capture = begin_capture(pool, stream);
    let address = test.allocate_raw(bytes, stream);
    // The graph is empty, and the pool keeps its memory without it.
    drop(capture.end().expect("it is whole"));
    address
}

#[test]
fn a_state_from_before_a_pool_grew_comes_back() {
    use BlockState::{Allocated, Free};
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let outside = test.allocate(512, &stream);
    let pool = graphs_pool(&test);
    drop(begin_capture(&pool, &stream).end().expect("it is whole"));
    let empty = pool.checkpoint().expect("it is saved");

    let first = captured(&test, &pool, 2 * MIB, &stream);
    assert_eq!(large_blocks(&test), [(2, Allocated), (18, Free)]);
    let small = pool.checkpoint().expect("it is saved");
    test.allocator.free_raw(first).expect("it is live");
    pool.restore(&empty).expect("it comes back");

    captured(&test, &pool, 32 * MIB, &stream);
    assert_eq!(large_blocks(&test), [(32, Allocated), (8, Free)]);
    pool.restore(&empty).expect("it comes back");
    let restored = pool.restore(&small).expect("it comes back");
    assert_eq!(restored.allocated, [first]);
    assert_eq!(large_blocks(&test), [(2, Allocated), (38, Free)]);
    test.assert_elastic_sound();
    drop(outside);
}

#[test]
fn another_streams_memory_in_a_graphs_pool_is_one_segment_more() {
    let test = TestAllocator::elastic("");
    let (stream, other, pool) = (test.stream(), test.stream(), graphs_pool(&test));
    let first = captured(&test, &pool, 16, &stream);
    test.allocator.free_raw(first).expect("it is live");
    assert_eq!(pool.snapshot().segments.len(), 1);
    for _ in 0..10 {
        for address in [0; 3].map(|_| raw(&test, &pool, 20 * MIB, &other)) {
            test.allocator.free_raw(address).expect("it is live");
        }
    }
    assert_eq!(pool.snapshot().segments.len(), 2);
    let id = pool.id();
    drop(pool);
    test.device.run_until_idle();
    test.allocator.empty_cache().expect("nothing fails");
    let gone = test.allocator.snapshot();
    let of_pool = |number: u32| gone.pools[number as usize].1 == id.user;
    assert!(!gone.segments.iter().any(|segment| of_pool(segment.pool)));
}

#[test]
fn whole_segments_give_way_to_a_limit() {
    let test = TestAllocator::elastic(",memory_limit:30M");
    let (stream, pool) = (test.stream(), graphs_pool(&test));
    let first = raw(&test, &pool, 2 * MIB, &stream);
    assert_eq!(test.device.physical_bytes(), 20 * MIB);
    let second = raw(&test, &pool, 26 * MIB, &stream);
    assert_eq!(test.device.physical_bytes(), 28 * MIB);
    for address in [first, second] {
        test.allocator.free_raw(address).expect("it is live");
    }
}
