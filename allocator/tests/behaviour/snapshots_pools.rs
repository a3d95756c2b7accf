//! Snapshots of one pool alone.

use cachette::Snapshot;
use cachette::snapshot::{PoolId, SnapshotOptions, TraceAction};

use crate::fixture::{MIB, Pool, TestAllocator};
use crate::history::events_only;

/// A pool's name as snapshots know it.
fn name(pool: &Pool) -> PoolId {
    let (capture, user) = pool.id().pair();
    PoolId(capture, user)
}

/// Whether everything in a snapshot is of one pool.
fn is_of(snapshot: &Snapshot, pool: PoolId) -> bool {
    let pool_at = |place: u32| snapshot.pools[place as usize];
    let events = snapshot.traces.iter().flat_map(|trace| &trace.events);
    let mut segments = snapshot.segments.iter();
    segments.all(|segment| pool_at(segment.pool) == pool) && events.clone().all(|event| pool_at(event.pool) == pool)
}

#[test]
fn p8_h11_a_pool_shows_its_own_segments_and_events() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    test.allocator.record_history(events_only());
    let pools = [test.allocator.create_pool(), test.allocator.create_pool()];
    let held: Vec<_> = pools.iter().map(|pool| pool.allocate(3 * MIB, &stream).unwrap()).collect();
    let outside = test.allocate(700, &stream);
    for (pool, memory) in pools.iter().zip(&held) {
        let snapshot = pool.snapshot();
        assert_eq!(snapshot.segments.len(), 1);
        assert_eq!(snapshot.segments[0].address, memory.address());
        assert!(is_of(&snapshot, name(pool)));
        let actions: Vec<_> = snapshot.traces[0].events.iter().map(|event| event.action).collect();
        assert_eq!(actions, [TraceAction::SegmentAlloc, TraceAction::Alloc]);
    }
    let default = SnapshotOptions::new().pool(cachette::PoolId::DEFAULT);
    let default = test.allocator.snapshot_with(default);
    assert_eq!(default.segments.len(), 1);
    assert!(is_of(&default, PoolId::default()));
    assert_eq!(test.allocator.snapshot().segments.len(), 3);
    drop((held, outside));
}

#[test]
fn h5_a_heap_that_changes_pools_names_the_one_it_serves() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    test.allocator.record_history(events_only());
    let mut names = Vec::new();
    for bytes in [600, 601, 602] {
        let pool = test.allocator.create_pool();
        drop(pool.allocate(bytes, &stream).unwrap());
        names.push((bytes, name(&pool)));
    }
    let snapshot = test.allocator.snapshot();
    for (bytes, pool) in names {
        let mut events = snapshot.traces[0].events.iter();
        let event = events.find(|event| event.bytes == bytes).unwrap();
        assert_eq!(snapshot.pools[event.pool as usize], pool);
    }
}
