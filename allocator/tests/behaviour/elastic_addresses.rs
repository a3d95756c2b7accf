//! Addresses of elastic segments: how many are reserved, and what happens when there are none.

use cachette::Error;
use cachette::hal::{Call, ErrorKind};
use cachette_hal_host::HostConfig;

use crate::fixture::{ELASTIC, GIB, KIB, MIB, TestAllocator};

const TIB: u64 = 1 << 40;

/// Lets every reservation fail, as many as any operation here could make, and every direct segment in its place.
fn refuse_reservations(test: &TestAllocator) {
    for nth in 1..=400 {
        test.device.fail_next(Call::Reserve, nth, ErrorKind::OutOfMemory);
        test.device.fail_next(Call::Allocate, nth, ErrorKind::OutOfMemory);
    }
}

#[test]
fn x2_the_first_segment_reserves_the_device_and_an_eighth() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    drop(test.allocate(KIB, &stream));
    let segments = test.allocator.elastic_segments();
    assert_eq!(segments[0].addresses, GIB + GIB / 8);
}

#[test]
fn x2_a_smaller_reserve_is_a_setting_and_grows_where_needed() {
    let (test, [stream]) = TestAllocator::elastic(",expandable_segments_reserve:16M").with_streams();
    let first = test.allocate(10 * MIB, &stream);
    assert_eq!(test.allocator.elastic_segments()[0].addresses, 16 * MIB);
    let second = test.allocate(10 * MIB, &stream);
    let third = test.allocate(100 * MIB, &stream);
    assert_eq!(test.device.live().reservations, 3, "X1: more where one does not fit");
    let addresses = test.allocator.elastic_segments()[0].addresses;
    assert_eq!(addresses, 2 * 16 * MIB + 100 * MIB);
    test.assert_elastic_sound();
    drop((first, second, third));
    assert!(test.allocator.empty_cache().is_ok_and(|bytes| bytes == 120 * MIB));
    test.assert_returns_everything_after(stream);
}

#[test]
fn d7_hundreds_of_streams_leave_addresses_over() {
    let host = HostConfig::default().capacity(141 * GIB).phantom(true);
    let test = TestAllocator::elastic_on(host, "");
    let streams: Vec<_> = (0..300).map(|_| test.stream()).collect();
    let live: Vec<_> =
        streams.iter().map(|stream| (test.allocate(KIB, stream), test.allocate(300 * MIB, stream))).collect();
    let segments = test.allocator.elastic_segments();
    assert_eq!(segments.len(), 300);
    let all: u64 = segments.iter().map(|segment| segment.addresses).sum();
    assert!(all < 16 * TIB, "{all} bytes of addresses are reserved");
    assert!(segments[0].addresses > 141 * GIB);
    test.assert_returns_everything_after((live, streams));
}

#[test]
fn chunks_and_blocks_are_right_at_every_granularity() {
    for (granularity, page) in [(4 * KIB, 2 * MIB), (2 * MIB, 2 * MIB), (64 * MIB, 64 * MIB)] {
        for recommended in [granularity, granularity.max(2 * MIB)] {
            let host = HostConfig::default().granularity(granularity, recommended);
            let (test, [stream]) = TestAllocator::elastic_on(host.stepped(3), "").with_streams();
            let small = test.allocate(KIB, &stream);
            assert_eq!(test.device.physical_bytes(), page, "granularity {granularity}");
            let large = test.allocate(page + page / 2, &stream);
            test.fill(&small, 1, &stream);
            test.fill(&large, 2, &stream);
            assert_eq!(test.content(&small, &stream), Some(1));
            assert_eq!(test.content(&large, &stream), Some(2));
            drop(large);
            let more = test.allocate(2 * page + 1, &stream);
            test.fill(&more, 3, &stream);
            test.device.run_until_idle();
            assert_eq!(test.content(&small, &stream), Some(1));
            test.assert_elastic_sound();
            drop((small, more));
            test.allocator.empty_cache().expect("nothing fails");
            assert_eq!(test.device.physical_bytes(), 0, "granularity {granularity}");
            test.assert_returns_everything_after(stream);
        }
    }
}

#[test]
fn without_addresses_only_the_request_fails() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    refuse_reservations(&test);
    let refused = test.allocator.allocate(3 * MIB, &stream);
    let Err(Error::OutOfMemory(report)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((report.requested, report.reserved), (3 * MIB, 0));
    test.assert_elastic_sound();
    test.device.clear_failures();
    drop(test.allocate(3 * MIB, &stream));
    test.assert_elastic_sound();
    test.assert_returns_everything_after(stream);
}

#[test]
fn fewer_addresses_do_where_many_are_not_to_be_had() {
    for refused in [1, 3, 9] {
        let (test, [stream]) = TestAllocator::elastic("").with_streams();
        for nth in 1..=refused {
            test.device.fail_next(Call::Reserve, nth, ErrorKind::OutOfMemory);
        }
        let memory = test.allocate(2 * MIB, &stream);
        let has = test.allocator.elastic_segments()[0].addresses;
        assert!((2 * MIB..GIB).contains(&has), "{has} after {refused} refusals");
        test.assert_elastic_sound();
        drop(memory);
    }
}

#[test]
fn what_has_addresses_serves_on_when_there_are_no_more() {
    let (test, [stream]) = TestAllocator::elastic(",expandable_segments_reserve:8M").with_streams();
    let first = test.allocate(4 * MIB, &stream);
    refuse_reservations(&test);
    assert!(test.allocator.allocate(16 * MIB, &stream).is_err());
    let second = test.allocate(4 * MIB, &stream);
    test.assert_elastic_sound();
    drop((first, second));
    drop(test.allocate(8 * MIB, &stream));
    assert_eq!(test.device.physical_bytes(), 8 * MIB);
}

#[test]
fn a_request_beyond_the_device_fails_before_it_makes_memory() {
    let host = HostConfig::default().capacity(64 * GIB).phantom(true);
    let (test, [stream]) = TestAllocator::elastic_on(host, "").with_streams();
    // Some drivers refuse such a range of addresses as an invalid value, which is no want of memory.
    for call in [Call::CreateBacking, Call::Reserve] {
        let made = test.calls_of(call, || {
            for bytes in [65 * GIB, TIB, 800_000_000 * GIB] {
                let refused = test.allocator.allocate(bytes, &stream);
                assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
            }
        });
        assert_eq!(made, 0, "{call}");
    }
    drop(test.allocate(KIB, &stream));
    test.assert_elastic_sound();
}

#[test]
fn addresses_that_lost_their_memory_serve_again() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let first = test.allocate(4 * MIB, &stream);
    let kept = test.allocate(2 * MIB, &stream);
    let address = first.address();
    drop(first);
    let moved = test.allocate(6 * MIB, &stream);
    assert_eq!(test.device.physical_bytes(), 8 * MIB, "chunks moved");
    test.device.run_until_idle();
    assert_eq!(test.allocate(4 * MIB, &stream).address(), address);
    drop((kept, moved));
}

#[test]
fn only_a_want_of_addresses_makes_ranges_smaller() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    test.device.fail_next(Call::Reserve, 1, ErrorKind::Other);
    let reserved = test.calls_of(Call::Reserve, || {
        assert!(test.allocator.allocate(3 * MIB, &stream).is_err());
    });
    assert_eq!(reserved, 1, "the driver failed for another reason");
}

#[test]
fn after_four_refusals_behind_work_nothing_is_moved() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let spare = test.allocate(16 * MIB, &stream);
    let kept = test.allocate(2 * MIB, &stream);
    drop(spare);
    // An idle stream would let the chunks be unmapped first.
    let work = test.hold(&stream);
    for nth in 1..=4 {
        test.device.fail_next(Call::Map, nth, ErrorKind::Unsupported);
    }
    let larger = test.allocate(18 * MIB, &stream);
    assert_eq!(test.device.physical_bytes(), 36 * MIB, "all of it is new");
    test.assert_elastic_sound();
    drop(work);
    drop((kept, larger));
}

#[test]
fn a_request_that_fills_two_holes_around_a_free_block_can_use_both() {
    let (test, [stream]) = TestAllocator::with(ELASTIC).with_streams();
    let [one, two, three] = [(); 3].map(|()| test.allocate(2 * MIB, &stream));
    let start = one.address();
    assert_eq!([two.address(), three.address()], [start + 2 * MIB, start + 4 * MIB]);
    drop((one, three));
    test.allocator.empty_cache().unwrap();
    stream.synchronize().unwrap();
    test.allocator.empty_cache().unwrap();
    drop(two);
    let whole = test.allocate(6 * MIB, &stream);
    assert_eq!(whole.address(), start, "it lies around the free block");
    test.fill(&whole, 3, &stream);
    assert_eq!(test.content(&whole, &stream), Some(3));
}
