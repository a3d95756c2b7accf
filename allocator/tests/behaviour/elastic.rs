//! Elastic segments: memory is mapped in whole pages where a block needs it, and released in whole chunks.

use cachette::hal::{Call, ErrorKind, Feature};
use cachette_hal_host::HostConfig;

use crate::fixture::{GIB, KIB, MIB, TestAllocator};

#[test]
fn x1_one_segment_of_a_stream_serves_every_size() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let sizes = [KIB, 512 * KIB, 3 * MIB, 40 * MIB, 700, 11 * MIB];
    let live = sizes.map(|bytes| test.allocate(bytes, &stream));
    assert_eq!(test.device.live().reservations, 1);
    let bases = live.each_ref().map(|memory| {
        let found = test.allocator.base_allocation(memory.address());
        found.expect("the memory is allocated").0
    });
    assert!(bases.iter().all(|base| *base == bases[0]));
    let other = test.stream();
    let apart = test.allocate(KIB, &other);
    assert_eq!(test.device.live().reservations, 2, "another stream has its own");
    test.assert_elastic_sound();
    test.assert_returns_everything_after((live, apart, stream, other));
}

#[test]
fn x3_a_block_that_ends_in_free_memory_grows_from_there() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let kept = test.allocate(2 * MIB, &stream);
    let start = test.allocate(4 * MIB, &stream).address();
    let created = test.calls_of(Call::CreateBacking, || {
        let grown = test.allocate(10 * MIB, &stream);
        assert_eq!(grown.address(), start);
    });
    assert_eq!(created, 3, "4 MiB were there, 6 were missing");
    assert_eq!(test.device.physical_bytes(), 12 * MIB);
    drop(kept);
}

#[test]
fn x3_the_place_with_the_fewest_missing_bytes_is_taken() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let live = [6, 2, 4, 2].map(|mib| test.allocate(mib * MIB, &stream));
    let [six, between, four, last] = live;
    let at = six.address();
    drop((six, four));
    // 10 MiB from `six` up to `last` would need nothing but what lies between, which is in use.
    let created = test.calls_of(Call::CreateBacking, || {
        let memory = test.allocate(8 * MIB, &stream);
        assert!(memory.address() > last.address());
    });
    assert_eq!(created, 0, "X4: idle chunks are reused, and no chunk is created");
    drop(between);
    test.assert_elastic_sound();
    assert!(test.allocate(2 * MIB, &stream).address() >= at);
}

#[test]
fn x4_only_what_is_missing_is_mapped_in_whole_pages() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let first = test.allocate(3 * MIB, &stream);
    assert_eq!(test.device.physical_bytes(), 4 * MIB);
    let second = test.allocate(MIB, &stream);
    assert_eq!(test.device.physical_bytes(), 4 * MIB, "the rest of a page serves");
    assert_eq!(second.address(), first.address() + 3 * MIB);
    let access = test.calls_of(Call::SetAccess, || {
        drop(test.allocate(20 * MIB, &stream));
    });
    assert_eq!(access, 1, "adjacent chunks are made accessible in one call");
    assert_eq!(test.device.physical_bytes(), 24 * MIB);
    test.assert_elastic_sound();
}

#[test]
fn x5_only_whole_unused_chunks_go_back_and_the_rest_stays_free() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let first = test.allocate(3 * MIB, &stream);
    let second = test.allocate(8 * MIB, &stream);
    let third = test.allocate(MIB, &stream);
    test.fill(&first, 1, &stream);
    test.fill(&third, 3, &stream);
    drop(second);
    test.device.run_until_idle();
    assert_eq!(test.allocator.empty_cache(), Ok(6 * MIB), "from 3 to 11 there are three pages");
    test.assert_elastic_sound();
    assert_eq!(test.content(&first, &stream), Some(1));
    assert_eq!(test.content(&third, &stream), Some(3));
    let created = test.calls_of(Call::CreateBacking, || {
        let left = [test.allocate(MIB, &stream), test.allocate(MIB, &stream)];
        let offsets = left.each_ref().map(|left| left.address() - first.address());
        assert!([3, 10].iter().all(|mib| offsets.contains(&(mib * MIB))));
    });
    assert_eq!(created, 0, "what is left of the pages at both ends serves on");
    drop((first, third));
    assert_eq!(test.allocator.empty_cache(), Ok(6 * MIB));
    assert_eq!(test.device.physical_bytes(), 0);
    assert_eq!(test.device.live().mappings, 0);
}

#[test]
fn a_fresh_gibibyte_takes_no_more_than_twenty_chunks() {
    for before in [0, 1, 1000, 30_000] {
        let (test, [stream]) = TestAllocator::phantom(24 * GIB, "expandable_segments:True").with_streams();
        let small: Vec<_> = (0..before).map(|_| test.allocate(10 * KIB, &stream)).collect();
        let created = test.calls_of(Call::CreateBacking, || {
            drop(test.allocate(GIB, &stream));
        });
        assert!(created <= 20, "{created} after {before} requests");
        drop(small);
    }
}

#[test]
fn x6_chunks_are_shareable_where_the_driver_supports_it() {
    use cachette::hal::Sharing;
    let host = || HostConfig::default().stepped(1);
    for (host, calls) in [(host(), 4), (host().without_sharing(Sharing::FileDescriptor), 5)] {
        let (test, [stream]) = TestAllocator::elastic_on(host, "").with_streams();
        let created = test.calls_of(Call::CreateBacking, || {
            drop(test.allocate(8 * MIB, &stream));
        });
        assert_eq!(created, calls, "one refusal is enough to know");
        test.assert_elastic_sound();
    }
}

#[test]
fn x6_a_failure_says_nothing_about_how_chunks_can_be_shared() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    test.device.fail_next(Call::CreateBacking, 1, ErrorKind::Other);
    let created = test.calls_of(Call::CreateBacking, || {
        assert!(test.allocator.allocate(2 * MIB, &stream).is_err());
    });
    assert_eq!(created, 1, "no other way was tried");
}

#[test]
fn x9_mapping_changes_reserved_bytes_and_no_segment_count() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let first = test.allocate(6 * MIB, &stream);
    let second = test.allocate(3 * MIB, &stream);
    let stats = test.stats();
    assert_eq!(stats.reserved_bytes.all.current, 10 * MIB);
    assert_eq!(stats.reserved_bytes.small_pool.current, 0);
    assert_eq!((stats.num_device_alloc, stats.num_device_free), (5, 0));
    drop(first);
    let stats = test.stats();
    assert_eq!(stats.inactive_split.all.peak, 0, "what is free can be given back");
    assert_eq!(stats.inactive_split_bytes.all.peak, 0);
    assert_eq!(test.allocator.empty_cache(), Ok(6 * MIB));
    let stats = test.stats();
    assert_eq!(stats.reserved_bytes.all.current, 4 * MIB);
    assert_eq!(stats.reserved_bytes.all.peak, 10 * MIB);
    assert_eq!(stats.reserved_bytes.all.freed, 6 * MIB);
    assert_eq!((stats.num_device_alloc, stats.num_device_free), (5, 3));
    assert_eq!(stats.segment.all.peak, 0);
    test.assert_elastic_sound();
    drop(second);
}

#[test]
fn x9_small_and_large_requests_count_by_their_own_size() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let live = [700, MIB, MIB + 1].map(|bytes| test.allocate(bytes, &stream));
    let stats = test.stats();
    assert_eq!(stats.allocation.small_pool.current, 2);
    assert_eq!(stats.allocation.large_pool.current, 1);
    assert_eq!(stats.allocated_bytes.small_pool.current, 1024 + MIB);
    test.assert_elastic_sound();
    drop(live);
    assert_eq!(test.stats().active_bytes.all.current, 0);
}

#[test]
fn x12_every_stream_says_what_it_has() {
    let (test, [one, two, idle]) = TestAllocator::elastic("").with_streams();
    assert_eq!(test.allocator.elastic_segments(), []);
    let live = [test.allocate(3 * MIB, &one), test.allocate(KIB, &two)];
    let segments = test.allocator.elastic_segments();
    let mapped: Vec<_> = segments.iter().map(|has| (has.stream, has.mapped)).collect();
    assert_eq!(mapped, [(one.handle(), 4 * MIB), (two.handle(), 2 * MIB)]);
    assert!(segments.iter().all(|has| has.addresses >= 1024 * MIB));
    drop(live);
    test.allocator.empty_cache().expect("nothing fails");
    let segments = test.allocator.elastic_segments();
    assert!(segments.iter().all(|has| has.mapped == 0), "{segments:?}");
    drop(idle);
}

#[test]
fn x14_without_virtual_memory_segments_are_the_devices_own() {
    let host = HostConfig::default().without(Feature::VirtualMemory);
    let (test, [stream]) = TestAllocator::elastic_on(host, "").with_streams();
    let live = [KIB, 3 * MIB, 40 * MIB].map(|bytes| test.allocate(bytes, &stream));
    assert_eq!(test.stats().segment.all.current, 3);
    assert_eq!(test.allocator.elastic_segments(), []);
    test.assert_sound();
    drop(live);
    assert!(test.allocator.empty_cache().is_ok_and(|bytes| bytes > 0));
    test.assert_sound();
}

#[test]
fn d10_a_bound_on_splitting_does_not_bind_elastic_segments() {
    let (test, [stream]) = TestAllocator::elastic(",max_split_size_mb:20").with_streams();
    drop(test.allocate(64 * MIB, &stream));
    let live = [2 * MIB, 30 * MIB, 20 * MIB].map(|bytes| test.allocate(bytes, &stream));
    assert_eq!(test.device.physical_bytes(), 64 * MIB);
    test.assert_elastic_sound();
    drop(live);
}

#[test]
fn small_requests_get_the_first_block_that_fits() {
    for setting in ["default", "compact"] {
        let config = format!("expandable_segments:True,elastic_setting:{setting}");
        let (test, [stream]) = TestAllocator::with(&config).with_streams();
        let blocks = [64, 1, 16, 1].map(|grains| test.allocate(grains * KIB, &stream));
        let [large, _between, small, _end] = blocks;
        let first = large.address();
        drop((large, small));
        assert_eq!(test.allocate(16 * KIB, &stream).address(), first, "{setting}");
    }
}
