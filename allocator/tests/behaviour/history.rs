//! The history: which events it keeps, how many, and what they carry.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cachette::TraceAction;
use cachette::history::HistoryOptions;
use cachette::snapshot::{self, Event};

use crate::fixture::{Allocation, MIB, TestAllocator};

/// Events without stacks, the last thousand.
pub(crate) fn events_only() -> HistoryOptions {
    HistoryOptions::new().stacks(false).max_entries(1000)
}

/// What happened so far; the event of the snapshot itself is left out.
pub(crate) fn events(test: &TestAllocator) -> Vec<Event> {
    let mut snapshot = test.allocator.snapshot();
    let mut events = snapshot.traces.pop().map_or_else(Vec::new, |t| t.events);
    events.retain(|event| event.action != TraceAction::Snapshot);
    events
}

/// What happened so far, as (action, address, bytes).
fn told(test: &TestAllocator) -> Vec<(TraceAction, u64, u64)> {
    let facts = |event: &Event| (event.action, event.address, event.bytes);
    events(test).iter().map(facts).collect()
}

#[test]
fn h1_off_means_no_events() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let memory = test.allocate(1000, &stream);
    assert!(!test.allocator.records_history());
    let snapshot = test.allocator.snapshot();
    assert_eq!((snapshot.traces.len(), snapshot.annotations.len()), (0, 0));
    assert!(test.allocator.allocation_stack(memory.address()).is_none());
}

#[test]
fn h4_h6_every_event_is_kept_with_what_was_asked_for_or_held() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    test.allocator.record_history(events_only());
    let memory = test.allocate(1000, &stream);
    let at = memory.address();
    drop(memory);
    test.allocator.empty_cache().unwrap();
    assert_eq!(
        told(&test),
        [
            (TraceAction::SegmentAlloc, at, 2 * MIB),
            (TraceAction::Alloc, at, 1000),
            (TraceAction::FreeRequested, at, 1000),
            (TraceAction::FreeCompleted, at, 1000),
            (TraceAction::SegmentFree, at, 2 * MIB),
        ]
    );
    let raw = stream.handle().raw() as u64;
    assert!(events(&test).iter().all(|event| event.stream == raw));
}

#[test]
fn h4_chunks_of_elastic_segments_are_mapped_and_unmapped() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    test.allocator.record_history(events_only());
    let memory = test.allocate(4 * MIB, &stream);
    let at = memory.address();
    drop(memory);
    test.allocator.empty_cache().unwrap();
    let of = |action| {
        let chosen = told(&test).into_iter().filter(|told| told.0 == action);
        chosen.map(|(_, at, bytes)| (at, bytes)).collect::<Vec<_>>()
    };
    let chunks = [(at, 2 * MIB), (at + 2 * MIB, 2 * MIB)];
    assert_eq!(of(TraceAction::SegmentMap), chunks);
    assert_eq!(of(TraceAction::SegmentUnmap), chunks);
    assert_eq!(of(TraceAction::SegmentAlloc), []);
}

#[test]
fn h5_h6_exhaustion_carries_device_free_and_rounded_size() {
    let (test, [stream]) = TestAllocator::of(64 * MIB, "").with_streams();
    test.allocator.record_history(events_only());
    assert!(test.allocator.allocate(99 * MIB - 1, &stream).is_err());
    assert_eq!(told(&test), [(TraceAction::OutOfMemory, 64 * MIB, 99 * MIB)]);
}

#[test]
fn h6_a_snapshot_is_an_event_that_the_next_one_tells() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    test.allocator.record_history(events_only());
    let live = test.allocate(1000, &stream);
    let hold = test.free_in_use(test.allocate(MIB, &stream), &side);
    let first = test.allocator.snapshot();
    let is_snapshot = |event: &Event| event.action == TraceAction::Snapshot;
    assert!(!first.traces[0].events.iter().any(is_snapshot));
    let second = test.allocator.snapshot();
    let last = second.traces[0].events.last().unwrap();
    assert_eq!((last.action, last.bytes), (TraceAction::Snapshot, 1024 + MIB));
    hold.release();
    drop(live);
}

#[test]
fn h3_the_oldest_events_are_overwritten_beyond_the_capacity() {
    for most in [1, 2, 7, 100, 5000, 70_000] {
        let (test, [stream]) = TestAllocator::phantom(1 << 40, "").with_streams();
        test.allocator.record_history(HistoryOptions::new().stacks(false).max_entries(most));
        let pairs = 2 * most + 3;
        for n in 1..=pairs {
            drop(test.allocate(n, &stream));
        }
        let events = events(&test);
        assert_eq!(events.len() as u64, most, "of {most}");
        if most > 3 {
            let last: Vec<_> = events[events.len() - 3..].iter().map(|event| (event.action, event.bytes)).collect();
            assert_eq!(
                last,
                [(TraceAction::Alloc, pairs), (TraceAction::FreeRequested, pairs), (TraceAction::FreeCompleted, pairs)]
            );
        }
        // Without a gap, whatever was overwritten.
        let allocs = events.iter().filter(|event| event.action == TraceAction::Alloc);
        let sizes: Vec<u64> = allocs.map(|event| event.bytes).collect();
        assert!(sizes.windows(2).all(|pair| pair[1] == pair[0] + 1));
    }
}

#[test]
fn h3_a_busy_stream_overwrites_no_events_of_other_streams() {
    let test = TestAllocator::phantom(1 << 40, "");
    let streams: Vec<_> = (0..33).map(|_| test.stream()).collect();
    let most = 20_000;
    test.allocator.record_history(HistoryOptions::new().stacks(false).max_entries(most));
    let mut made = 0;
    for round in 0..4000_u64 {
        let rare = &streams[usize::try_from(round % 32).unwrap()];
        drop(test.allocate(1 << 13 | 1, rare));
        for _ in 0..3 {
            drop(test.allocate(512, &streams[32]));
        }
        made += 4;
    }
    let events = events(&test);
    assert_eq!(events.len() as u64, most);
    let of = |bytes| {
        let allocs = events.iter().filter(|event| event.action == TraceAction::Alloc);
        allocs.filter(|event| event.bytes == bytes).count()
    };
    let (rare, often) = (of(1 << 13 | 1), of(512));
    assert!(made > most / 3, "the ring went round");
    assert!(often.abs_diff(3 * rare) <= 3, "{often} to {rare}");
}

#[test]
fn h3_what_was_recorded_stays_unless_it_is_to_be_forgotten() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let options = || events_only().skip([TraceAction::Snapshot]);
    let alloc = || drop(test.allocate(700, &stream));
    test.allocator.record_history(options());
    alloc();
    let first = told(&test);
    assert_eq!(first.len(), 4);
    test.allocator.record_history(options());
    alloc();
    assert_eq!(told(&test).len(), 7);
    assert_eq!(told(&test)[..4], first);
    // More room, and less.
    test.allocator.record_history(options().max_entries(9999));
    alloc();
    assert_eq!(told(&test).len(), 10);
    assert_eq!(told(&test)[..4], first);
    test.allocator.record_history(options().max_entries(5));
    assert_eq!(told(&test).len(), 5, "the newest");
    test.allocator.record_history(options().clear(true));
    assert_eq!(told(&test), []);
    alloc();
    test.allocator.stop_history();
    assert!(test.allocator.snapshot().traces.is_empty());
    test.allocator.record_history(options());
    assert_eq!(told(&test), [], "H3: switched off, it was emptied");
}

#[test]
fn h4_actions_are_left_out_by_name() {
    for skipped in TraceAction::ALL {
        let (test, [stream]) = TestAllocator::new().with_streams();
        let options = events_only().skip_named([skipped.name()]).unwrap();
        test.allocator.record_history(options);
        drop(test.allocate(700, &stream));
        let _ = test.allocator.allocate(2 << 30, &stream);
        test.allocator.empty_cache().unwrap();
        drop(test.allocator.snapshot());
        let snapshot = test.allocator.snapshot();
        let mut names: Vec<String> =
            snapshot.traces[0].events.iter().map(|event| format!("{:?}", event.action)).collect();
        names.sort();
        let mut wanted: Vec<String> = [
            TraceAction::Alloc,
            TraceAction::FreeCompleted,
            TraceAction::FreeRequested,
            TraceAction::OutOfMemory,
            TraceAction::SegmentAlloc,
            TraceAction::SegmentFree,
            TraceAction::Snapshot,
        ]
        .iter()
        .filter(|action| **action != skipped)
        .map(|action| format!("{action:?}"))
        .collect();
        wanted.sort();
        assert_eq!(names, wanted, "without {skipped}");
    }
}

#[test]
fn h4_an_unknown_action_is_named() {
    let error = events_only().skip_named(["alloc", "frobnicate"]).unwrap_err();
    assert_eq!(error.to_string(), "Unknown TraceEntry action: frobnicate");
    for action in TraceAction::ALL {
        assert_eq!(action.name().parse(), Ok(action));
    }
}

#[test]
fn h15_times_are_microseconds_since_1970() {
    let epoch_us = || {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        i64::try_from(time.as_micros()).unwrap()
    };
    let (test, [stream]) = TestAllocator::new().with_streams();
    test.allocator.record_history(events_only());
    let before = epoch_us();
    let memory = test.allocate(700, &stream);
    std::thread::sleep(Duration::from_millis(20));
    let between = epoch_us();
    drop(memory);
    let after = epoch_us();
    let times: Vec<i64> = events(&test).iter().map(|event| event.time_us).collect();
    assert!(times.is_sorted());
    let tolerance = 5000;
    for (range, times) in [(before..=between, &times[..2]), (between..=after, &times[2..])] {
        for time in times {
            let (from, to) = (range.start() - tolerance, range.end() + tolerance);
            assert!((from..=to).contains(time), "{time} in {range:?}");
        }
    }
}

#[test]
fn h5_events_name_their_pool() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    test.allocator.record_history(events_only());
    let pool = test.allocator.create_pool();
    let inside = pool.allocate(700, &stream).unwrap();
    let outside = test.allocate(700, &stream);
    let snapshot = test.allocator.snapshot();
    let pool_of = |memory: &Allocation| {
        let mut events = snapshot.traces[0].events.iter();
        let event = events.find(|event| event.address == memory.address());
        snapshot.pools[event.unwrap().pool as usize]
    };
    let (capture, user) = pool.id().pair();
    assert_eq!(pool_of(&inside), snapshot::PoolId(capture, user));
    assert_eq!(pool_of(&outside), snapshot::PoolId::default());
    assert_eq!(snapshot.pools[0], snapshot::PoolId::default());
}

#[test]
fn a_history_begun_during_a_capture_leaves_it_whole() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let (pool, capture) = test.capture(&stream);
    test.allocator.record_history(events_only());
    let memory = test.allocate(700, &stream);
    assert!(test.is_captured(&stream));
    let snapshot = pool.snapshot();
    assert_eq!(snapshot.segments.len(), 1);
    drop(memory);
    drop(capture.end().unwrap());
}

#[test]
fn memory_freed_after_its_allocator_is_gone_hurts_no_history() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    test.allocator.record_history(HistoryOptions::new());
    let memory = test.allocate(700, &stream);
    drop((test, stream));
    drop(memory);
}

#[test]
fn h3_more_events_than_any_host_can_keep_are_limited() {
    for entries in [HistoryOptions::MOST_ENTRIES + 1, u64::MAX / 2, u64::MAX] {
        let (test, [stream]) = TestAllocator::new().with_streams();
        test.allocator.record_history(events_only().max_entries(entries));
        drop(test.allocate(512, &stream));
        assert!(!events(&test).is_empty());
    }
}
