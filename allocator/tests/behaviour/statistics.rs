//! Statistics, exact to the byte.

use cachette::{Stat, StatArray};

use crate::fixture::{GIB, KIB, MIB, TestAllocator};

#[test]
fn t1_t3_an_allocation_moves_every_figure_by_what_it_is() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    for (name, array) in test.stats().arrays() {
        assert_eq!(*array, StatArray::default(), "{name}");
    }
    let memory = test.allocate(1000, &stream);
    let stats = test.stats();
    let one = |figure| Stat { current: figure, peak: figure, allocated: figure, freed: 0 };
    for (array, figure) in [
        (stats.allocation, 1),
        (stats.segment, 1),
        (stats.active, 1),
        (stats.inactive_split, 1),
        (stats.allocated_bytes, 1024),
        (stats.reserved_bytes, 2 * MIB),
        (stats.active_bytes, 1024),
        (stats.inactive_split_bytes, 2 * MIB - 1024),
        (stats.requested_bytes, 1000),
    ] {
        assert_eq!(array.all, one(figure));
        assert_eq!(array.small_pool, one(figure));
        assert_eq!(array.large_pool, Stat::default());
    }
    assert_eq!((stats.num_device_alloc, stats.num_device_free), (1, 0));
    drop(memory);
    let stats = test.stats();
    assert_eq!(stats.active_bytes.all, Stat { current: 0, peak: 1024, allocated: 1024, freed: 1024 });
    assert_eq!(stats.requested_bytes.all.freed, 1000);
    assert_eq!(stats.reserved_bytes.all, one(2 * MIB));
    assert_eq!(stats.inactive_split.all.current, 0);
}

#[test]
fn t4_a_free_part_that_is_reused_at_once_counts_meanwhile() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let first = test.allocate(KIB, &stream);
    let second = test.allocate(KIB, &stream);
    assert_eq!(test.stats().inactive_split.all.peak, 1);
    drop(first);
    let third = test.allocate(KIB, &stream);
    let stats = test.stats().inactive_split.all;
    assert_eq!((stats.current, stats.peak), (1, 2));
    drop((second, third));
}

#[test]
fn t1_peaks_are_exact_if_one_block_serves_requests_of_several_sizes() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    for requested in [900, 900, 1000, 950] {
        drop(test.allocate(requested, &stream));
    }
    assert_eq!(test.stats().requested_bytes.all.peak, 1000);
    test.allocator.reset_peaks();
    drop(test.allocate(940, &stream));
    assert_eq!(test.stats().requested_bytes.all.peak, 940);
}

#[test]
fn t1_what_waits_counts_into_the_active_peak_only() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let hold = test.hold(&side);
    for _ in 0..3 {
        let memory = test.allocate(MIB, &stream);
        memory.record_stream(&side);
    }
    let stats = test.stats();
    assert_eq!(stats.active_bytes.all.peak, 3 * MIB);
    assert_eq!(stats.allocated_bytes.all.peak, MIB);
    assert_eq!((stats.active.all.peak, stats.allocation.all.peak), (3, 1));
    assert_eq!(stats.requested_bytes.all.peak, 3 * MIB);
    hold.release();
}

#[test]
fn t3_what_is_rounded_or_not_split_off_is_allocated_and_the_asked_size_requested() {
    for (config, asked, given) in [("roundup_power2_divisions:2", 5 * MIB, 6 * MIB), ("", 11 * MIB, 12 * MIB)] {
        let (test, [stream]) = TestAllocator::with(config).with_streams();
        let memory = test.allocate(asked, &stream);
        let stats = test.stats();
        assert_eq!(memory.bytes(), given, "{config}");
        assert_eq!(stats.allocated_bytes.all.current, given, "{config}");
        assert_eq!(stats.active_bytes.all.current, given, "{config}");
        assert_eq!(stats.requested_bytes.all.current, asked, "{config}");
    }
    let (test, [stream]) = TestAllocator::new().with_streams();
    drop(test.allocate(12 * MIB, &stream));
    let stats = test.stats();
    assert_eq!((stats.inactive_split.all.peak, stats.segment.all.current), (0, 1), "T4: a whole block is no part");
}

#[test]
fn the_table_names_every_figure() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let memory = test.allocate(12 * MIB, &stream);
    let table = test.stats().to_string();
    for (name, _) in test.stats().arrays() {
        assert!(table.contains(name), "{name} is missing in\n{table}");
    }
    assert!(table.contains("12.00 MiB"), "{table}");
    drop(memory);
}

#[test]
fn t1_peaks_are_exact_with_many_streams() {
    const STREAMS: u64 = 700;
    for text in ["", "expandable_segments:True"] {
        let test = TestAllocator::phantom(8 * GIB, text);
        let streams: Vec<_> = (0..STREAMS).map(|_| test.stream()).collect();
        let memory: Vec<_> = streams.iter().map(|stream| test.allocate(KIB, stream)).collect();
        let figures = || {
            let stats = test.stats();
            let of = |stat: Stat| (stat.current, stat.peak, stat.allocated);
            (of(stats.allocation.all), of(stats.allocated_bytes.all))
        };
        let bytes = STREAMS * KIB;
        assert_eq!(figures(), ((STREAMS, STREAMS, STREAMS), (bytes, bytes, bytes)), "{text}");
        let mut memory = memory.into_iter();
        drop(memory.by_ref().take(500).collect::<Vec<_>>());
        assert_eq!(figures().0, (200, STREAMS, STREAMS), "{text}");
        // Fewer than before, in streams of any age.
        let more: Vec<_> = streams.iter().step_by(2).map(|stream| test.allocate(KIB, stream)).collect();
        assert_eq!(figures().0, (550, STREAMS, STREAMS + 350), "{text}");
        // One more than ever.
        let most: Vec<_> = streams.iter().rev().take(151).map(|stream| test.allocate(KIB, stream)).collect();
        assert_eq!(figures().0, (701, 701, STREAMS + 501), "{text}");
        test.allocator.reset_peaks();
        drop((memory, more));
        assert_eq!(figures().0, (151, 701, STREAMS + 501), "{text}");
        test.allocator.reset_peaks();
        assert_eq!(figures().0, (151, 151, STREAMS + 501), "{text}");
        drop(most);
        test.assert_returns_everything_after(streams);
    }
}
