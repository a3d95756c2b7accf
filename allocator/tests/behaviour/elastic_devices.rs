//! Devices whose virtual memory is coarse, restricted or scarce: blocks stay sound, and the memory held stays bounded.

use std::cell::RefCell;

use cachette::hal::{Call, ErrorKind};
use cachette::pool::PoolOptions;
use cachette_hal_host::HostConfig;

use crate::fixture::{Allocation, GIB, KIB, MIB, Stream, TestAllocator};

/// Requests and frees at random: 200 slots, three streams, sizes from 64 KiB to 512 MiB. Returns peak reserved bytes
/// over peak allocated bytes, in thousandths.
fn held_by_a_churn(test: &TestAllocator) -> u64 {
    let streams: Vec<Stream> = (0..3).map(|_| test.stream()).collect();
    let mut slots: Vec<Option<Allocation>> = (0..200).map(|_| None).collect();
    let mut seed = 7_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for step in 0..6000 {
        let [slot, stream] = [200, 3].map(|below| usize::try_from(draw(below)).expect("it is small"));
        let (octave, part) = (draw(13), draw(1024));
        slots[slot] = match slots[slot].take() {
            Some(_) => None,
            None => Some(test.allocate(((64 * KIB) << octave) * (1024 + part) / 1024, &streams[stream])),
        };
        if step % 100 == 0 {
            test.assert_elastic_sound();
        }
    }
    drop(slots);
    let stats = test.stats();
    assert_eq!(stats.num_ooms, 0);
    stats.reserved_bytes.all.peak * 1000 / stats.allocated_bytes.all.peak
}

#[test]
fn memory_held_is_bounded_on_every_device() {
    let host = || HostConfig::default().capacity(64 * GIB).phantom(true);
    let devices = [
        ("usual", host(), 1100),
        ("granularity of 4 KiB", host().granularity(4 * KIB, 4 * KIB), 1100),
        ("granularity of 64 MiB", host().granularity(64 * MIB, 64 * MIB), 1200),
        ("no aliases", host().without_aliases(), 1800),
        ("every second alias refused", host().refusing_aliases(2), 1100),
        ("one size in a reservation", host().mapping_one_size(), 1100),
    ];
    for (name, host, most) in devices {
        let test = TestAllocator::on(host, "expandable_segments:True");
        let held = held_by_a_churn(&test);
        assert!(held <= most, "{name}: {held} thousandths of the memory in use were held");
        test.assert_returns_everything();
    }
}

#[test]
fn whole_segments_of_pools_have_chunks_of_one_size_too() {
    let host = HostConfig::default().capacity(64 * GIB).phantom(true).mapping_one_size();
    let test = TestAllocator::on(host, "expandable_segments:True");
    let (stream, options) = (test.stream(), PoolOptions::default().whole_segments(true));
    let pool = test.allocator.create_pool_with(options).expect("options without a source are accepted");
    let live: Vec<_> = (1..40).map(|size| pool.allocate(size * MIB, &stream).expect("there is memory")).collect();
    test.assert_elastic_sound();
    test.assert_returns_everything_after((live, pool, stream));
}

#[test]
fn addresses_where_a_map_failed_get_no_further_memory_if_sizes_must_be_equal() {
    for (host, ranges) in [(HostConfig::default(), 1), (HostConfig::default().mapping_one_size(), 2)] {
        let test = TestAllocator::on(host, "expandable_segments:True");
        let stream = test.stream();
        let addresses = || test.allocator.elastic_segments().iter().map(|segment| segment.addresses).sum::<u64>();
        let first = test.allocate(4 * MIB, &stream);
        let reserved = addresses();
        test.device.fail_next(Call::Map, 1, ErrorKind::OutOfMemory);
        let second = test.allocate(8 * MIB, &stream);
        assert_eq!(addresses(), ranges * reserved);
        test.fill(&first, 1, &stream);
        test.fill(&second, 2, &stream);
        assert_eq!(test.content(&first, &stream), Some(1));
        let address = first.address();
        drop(first);
        assert_eq!(test.allocate(4 * MIB, &stream).address(), address, "memory that is mapped stays usable");
        test.assert_returns_everything_after((second, stream));
    }
}

#[test]
fn maps_that_keep_failing_cost_a_bounded_number_of_addresses() {
    let test = TestAllocator::on(HostConfig::default().mapping_one_size(), "expandable_segments:True");
    let stream = test.stream();
    let ranges = || test.device.calls(Call::Reserve) - test.device.calls(Call::Release);
    let first = test.allocate(4 * MIB, &stream);
    for _ in 0..20 {
        for call in [Call::Map, Call::Allocate] {
            (1..60).for_each(|nth| test.device.fail_next(call, nth, ErrorKind::OutOfMemory));
        }
        test.allocator.allocate(8 * MIB, &stream).expect_err("nothing can be mapped, or allocated directly");
        test.device.clear_failures();
        test.assert_elastic_sound();
    }
    // That of the first block, to which the driver grants no further memory.
    assert_eq!(ranges(), 1);
    let second = test.allocate(8 * MIB, &stream);
    assert_eq!(ranges(), 2);
    drop(first);
    test.allocator.empty_cache().expect("the device frees memory");
    assert_eq!(ranges(), 1, "closed addresses are released once their memory is");
    test.fill(&second, 2, &stream);
    assert_eq!(test.content(&second, &stream), Some(2));
    test.assert_returns_everything_after((second, stream));
}

#[test]
fn closed_addresses_that_the_device_refuses_to_release_are_released_later() {
    let host = HostConfig::default().withholding().mapping_one_size();
    let test = TestAllocator::on(host, "expandable_segments:True");
    let stream = test.stream();
    test.device.fail_next(Call::Map, 2, ErrorKind::OutOfMemory);
    test.device.fail_next(Call::Release, 1, ErrorKind::Other);
    // The first chunk of the block was mapped, and the device withholds its memory with the addresses.
    drop(test.allocate(4 * MIB, &stream));
    test.assert_returns_everything_after(stream);
}

#[test]
fn a_churn_fits_into_a_device_that_is_hardly_larger_than_its_peak() {
    let roomy = TestAllocator::on(HostConfig::default().capacity(64 * GIB).phantom(true), "expandable_segments:True");
    held_by_a_churn(&roomy);
    let peak = roomy.stats().allocated_bytes.all.peak;
    let tight = (peak + peak / 20).next_multiple_of(2 * MIB);
    let test = TestAllocator::on(HostConfig::default().capacity(tight).phantom(true), "expandable_segments:True");
    assert!(held_by_a_churn(&test) <= 1050);
    test.assert_returns_everything();
}

#[test]
fn a_thousand_streams_share_what_they_free() {
    let host = HostConfig::default().capacity(64 * GIB).phantom(true);
    let test = TestAllocator::on(host, "expandable_segments:True");
    for _ in 0..100 {
        let gone = test.stream();
        drop(test.allocate(20 * MIB, &gone));
    }
    let streams: Vec<_> = (0..1000).map(|_| test.stream()).collect();
    for stream in &streams {
        drop(test.allocate(20 * MIB, stream));
    }
    test.assert_elastic_sound();
    assert_eq!(test.stats().reserved_bytes.all.peak, 20 * MIB);
    test.assert_returns_everything_after(streams);
}

#[test]
fn a_request_gets_one_chunk_and_several_if_there_are_many_streams() {
    let test = TestAllocator::phantom(141 * GIB, "expandable_segments:True");
    let stream = test.stream();
    let live = RefCell::new(vec![test.allocate(2 * GIB, &stream)]);
    let created = || test.calls_of(Call::CreateBacking, || live.borrow_mut().push(test.allocate(64 * MIB, &stream)));
    // Few requests have paid for the chunks of the first one.
    assert_eq!(created(), 1);
    let others: Vec<_> = (0..15).map(|_| test.stream()).collect();
    assert_eq!(created(), 1, "the others have no memory");
    live.borrow_mut().extend(others.iter().map(|other| test.allocate(MIB, other)));
    assert_eq!(created(), 16);
    test.assert_returns_everything_after((live, others, stream));
}
