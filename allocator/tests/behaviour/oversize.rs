//! Blocks that are not split: who gets them, and which are given back for a request.

use cachette::hal::{Call, ErrorKind};

use crate::bed::{Bed, MIB};

#[test]
fn s13_a_request_below_the_bound_leaves_an_unsplittable_block_alone() {
    let bed = Bed::with("max_split_size_mb:40");
    let stream = bed.stream();
    drop(bed.allocate(40 * MIB, &stream));
    let calls = bed.calls_of(Call::Allocate, || drop(bed.allocate(30 * MIB, &stream)));
    assert_eq!(calls, 1);
    // What is below the bound may be taken and split.
    let calls = bed.calls_of(Call::Allocate, || drop(bed.allocate(12 * MIB, &stream)));
    assert_eq!(calls, 0);
}

#[test]
fn s13_a_bound_as_large_as_a_segment_still_lets_new_segments_be_split() {
    let bed = Bed::with("max_split_size_mb:20");
    let stream = bed.stream();
    let first = bed.allocator.allocate(2 * MIB, &stream).unwrap();
    assert_eq!(first.bytes(), 2 * MIB);
    let second = bed.allocate(3 * MIB, &stream);
    assert_eq!(second.address(), first.address() + 2 * MIB);
    assert_eq!(bed.stats().segment.all.current, 1);
}

#[test]
fn s14_a_request_from_the_bound_on_takes_a_block_that_it_nearly_fills() {
    let bed = Bed::with("max_split_size_mb:40");
    let stream = bed.stream();
    let address = bed.allocate(60 * MIB, &stream).address();
    // 20 MiB too large is too much, and one step less is not.
    let (far, near) = (bed.allocate(40 * MIB, &stream), bed.allocate(42 * MIB, &stream));
    assert_ne!(far.address(), address);
    assert_eq!((near.address(), near.bytes()), (address, 60 * MIB));
}

#[test]
fn s14_how_much_may_be_wasted_is_a_setting() {
    let bed = Bed::with("max_split_size_mb:40,max_non_split_rounding_mb:30");
    let stream = bed.stream();
    let address = bed.allocate(68 * MIB, &stream).address();
    assert_eq!(bed.allocate(40 * MIB, &stream).address(), address);
}

#[test]
fn s15_a_request_from_the_bound_on_is_not_split() {
    let bed = Bed::with("max_split_size_mb:40");
    let stream = bed.stream();
    drop(bed.allocate(58 * MIB, &stream));
    let memory = bed.allocate(40 * MIB, &stream);
    assert_eq!((memory.requested(), memory.bytes()), (40 * MIB, 58 * MIB));
    assert_eq!(bed.stats().inactive_split.all.current, 0);
}

#[test]
fn m9_a_single_block_that_is_enough_is_given_back() {
    let bed = Bed::with("max_split_size_mb:40");
    let stream = bed.stream();
    let blocks = [44, 100, 70].map(|mib| bed.allocate(mib * MIB, &stream));
    drop(blocks);
    drop(bed.allocate(12 * MIB, &stream));
    bed.device.fail_next(Call::Allocate, 1, ErrorKind::OutOfMemory);
    let frees = bed.calls_of(Call::Free, || drop(bed.allocate(46 * MIB, &stream)));
    // 70 MiB is the smallest that is enough; 44 MiB, 100 MiB and what may be split stay.
    assert_eq!(frees, 1);
    assert_eq!(bed.stats().reserved_bytes.all.current, (44 + 100 + 12 + 46) * MIB);
    bed.assert_sound();
}

#[test]
fn m9_otherwise_the_largest_are_given_back_until_they_are_enough() {
    let bed = Bed::with("max_split_size_mb:40");
    let stream = bed.stream();
    let blocks = [40, 60, 50, 44].map(|mib| bed.allocate(mib * MIB, &stream));
    drop(blocks);
    bed.device.fail_next(Call::Allocate, 1, ErrorKind::OutOfMemory);
    let frees = bed.calls_of(Call::Free, || drop(bed.allocate(100 * MIB, &stream)));
    assert_eq!(frees, 2);
    assert_eq!(bed.stats().reserved_bytes.all.current, (40 + 44 + 100) * MIB);
}

#[test]
fn m9_other_streams_keep_theirs() {
    let bed = Bed::with("max_split_size_mb:40");
    let (stream, side) = (bed.stream(), bed.stream());
    drop(bed.allocate(80 * MIB, &side));
    drop(bed.allocate(60 * MIB, &stream));
    bed.device.fail_next(Call::Allocate, 1, ErrorKind::OutOfMemory);
    drop(bed.allocate(100 * MIB, &stream));
    // The stream's own were not enough, so everything was given back.
    assert_eq!(bed.stats().reserved_bytes.all.current, 100 * MIB);
    drop(bed.allocate(80 * MIB, &side));
    bed.device.fail_next(Call::Allocate, 1, ErrorKind::OutOfMemory);
    drop(bed.allocate(60 * MIB, &stream));
    // This time they were, and the other stream's block stays.
    assert_eq!(bed.stats().reserved_bytes.all.current, (80 + 60) * MIB);
}

#[test]
fn m9_without_a_bound_nothing_is_given_back_piecemeal() {
    let bed = Bed::new();
    let stream = bed.stream();
    let blocks = [44, 100, 70].map(|mib| bed.allocate(mib * MIB, &stream));
    drop(blocks);
    bed.device.fail_next(Call::Allocate, 1, ErrorKind::OutOfMemory);
    let frees = bed.calls_of(Call::Free, || drop(bed.allocate(120 * MIB, &stream)));
    assert_eq!(frees, 3);
}
