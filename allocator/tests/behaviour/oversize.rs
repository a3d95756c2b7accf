//! Oversize blocks, which are not split: which requests get them, and which are released.

use cachette::hal::{Call, ErrorKind};

use crate::fixture::{MIB, TestAllocator};

#[test]
fn s13_a_request_below_the_bound_takes_no_unsplittable_block() {
    let (test, [stream]) = TestAllocator::with("max_split_size_mb:40").with_streams();
    drop(test.allocate(40 * MIB, &stream));
    let calls = test.calls_of(Call::Allocate, || drop(test.allocate(30 * MIB, &stream)));
    assert_eq!(calls, 1);
    // What is below the bound may be taken and split.
    let calls = test.calls_of(Call::Allocate, || drop(test.allocate(12 * MIB, &stream)));
    assert_eq!(calls, 0);
}

#[test]
fn s13_a_bound_of_a_segments_size_allows_new_ones_to_be_split() {
    let (test, [stream]) = TestAllocator::with("max_split_size_mb:20").with_streams();
    let first = test.allocator.allocate(2 * MIB, &stream).unwrap();
    assert_eq!(first.bytes(), 2 * MIB);
    let second = test.allocate(3 * MIB, &stream);
    assert_eq!(second.address(), first.address() + 2 * MIB);
    assert_eq!(test.stats().segment.all.current, 1);
}

#[test]
fn s14_a_request_from_the_bound_on_nearly_fills_its_block() {
    let (test, [stream]) = TestAllocator::with("max_split_size_mb:40").with_streams();
    let address = test.allocate(60 * MIB, &stream).address();
    // 20 MiB too large is too much, and one step less is not.
    let (far, near) = (test.allocate(40 * MIB, &stream), test.allocate(42 * MIB, &stream));
    assert_ne!(far.address(), address);
    assert_eq!((near.address(), near.bytes()), (address, 60 * MIB));
}

#[test]
fn s14_how_much_may_be_wasted_is_a_setting() {
    let (test, [stream]) = TestAllocator::with("max_split_size_mb:40,max_non_split_rounding_mb:30").with_streams();
    let address = test.allocate(68 * MIB, &stream).address();
    assert_eq!(test.allocate(40 * MIB, &stream).address(), address);
}

#[test]
fn s15_a_request_from_the_bound_on_is_not_split() {
    let (test, [stream]) = TestAllocator::with("max_split_size_mb:40").with_streams();
    drop(test.allocate(58 * MIB, &stream));
    let memory = test.allocate(40 * MIB, &stream);
    assert_eq!((memory.requested(), memory.bytes()), (40 * MIB, 58 * MIB));
    assert_eq!(test.stats().inactive_split.all.current, 0);
}

#[test]
fn m9_one_block_that_is_enough_is_given_back_or_the_largest_until_they_suffice() {
    for (config, cached, asked, freed, left) in [
        // 70 MiB is the smallest that is enough; 44 MiB, 100 MiB and what may be split stay.
        ("max_split_size_mb:40", [44, 100, 70, 12], 46, 1, 44 + 100 + 12),
        ("max_split_size_mb:40", [40, 60, 50, 44], 100, 2, 40 + 44),
        // What may be split does not count, so 44 MiB are not enough and everything goes.
        ("max_split_size_mb:40", [44, 12, 14, 16], 60, 4, 0),
        // Without a bound nothing is given back piecemeal.
        ("", [44, 100, 70, 12], 120, 4, 0),
    ] {
        let (test, [stream]) = TestAllocator::with(config).with_streams();
        drop(cached.map(|mib| test.allocate(mib * MIB, &stream)));
        test.device.fail_next(Call::Allocate, 1, ErrorKind::OutOfMemory);
        let frees = test.calls_of(Call::Free, || drop(test.allocate(asked * MIB, &stream)));
        assert_eq!(frees, freed, "{config}, {asked} MiB");
        assert_eq!(test.stats().reserved_bytes.all.current, (left + asked) * MIB, "{config}, {asked} MiB");
        test.assert_sound();
    }
}

#[test]
fn m9_other_streams_keep_theirs() {
    let (test, [stream, side]) = TestAllocator::with("max_split_size_mb:40").with_streams();
    drop(test.allocate(80 * MIB, &side));
    drop(test.allocate(60 * MIB, &stream));
    test.device.fail_next(Call::Allocate, 1, ErrorKind::OutOfMemory);
    drop(test.allocate(100 * MIB, &stream));
    // The stream's own were not enough, so everything was given back.
    assert_eq!(test.stats().reserved_bytes.all.current, 100 * MIB);
    drop(test.allocate(80 * MIB, &side));
    test.device.fail_next(Call::Allocate, 1, ErrorKind::OutOfMemory);
    drop(test.allocate(60 * MIB, &stream));
    // This time they were, and the other stream's block stays.
    assert_eq!(test.stats().reserved_bytes.all.current, (80 + 60) * MIB);
}

#[test]
fn m9_no_more_segments_are_released_than_the_request_needs() {
    let (test, [stream]) = TestAllocator::of(120 * MIB, "max_split_size_mb:30").with_streams();
    let idle = [48, 36, 36].map(|size| test.allocate(size * MIB, &stream));
    drop(idle);
    let memory = test.allocate(84 * MIB, &stream);
    assert_eq!(test.stats().num_device_free, 2, "48 and 36 MiB are just enough");
    drop(memory);
}
