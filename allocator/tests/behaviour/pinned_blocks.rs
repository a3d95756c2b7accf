//! Pinned memory in exact sizes: blocks of segments, which split, merge, and return to the driver.

use cachette::Error;
use cachette::hal::{Call, ErrorKind};
use cachette_hal_host::HostConfig;

use crate::fixture::{TestAllocator, config, let_pass};
use crate::pinned::{Staged, WHOLE};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn at(memory: &Staged) -> u64 {
    memory.ptr().addr().get() as u64
}

fn held(test: &TestAllocator) -> u64 {
    test.allocator.pinned().stats().allocated_bytes.current
}

#[test]
fn n1_sizes_are_exact() {
    let test = TestAllocator::new();
    for (requested, bytes) in [
        (1, 512),
        (512, 512),
        (513, KIB),
        (40 * KIB, 40 * KIB),
        (MIB, MIB),
        (MIB + 1, MIB + 4 * KIB),
        (5 * MIB, 5 * MIB),
        (600 * MIB + 4097, 600 * MIB + 8 * KIB),
    ] {
        let memory = test.pin(requested);
        assert_eq!((memory.requested(), memory.bytes()), (requested, bytes));
        assert_eq!(test.allocator.pinned().stats().active_bytes.current, bytes);
        let page = if requested > MIB { 4 * KIB } else { 512 };
        assert!(at(&memory).is_multiple_of(page), "{requested} bytes begin at {:#x}", at(&memory));
    }
    test.assert_returns_everything();
}

#[test]
fn n1_no_more_is_held_than_was_requested() {
    for (bytes, count) in [(3 * KIB, 4000), (96 * KIB, 500), (700 * KIB, 100), (MIB, 9), (3 * MIB + 17 * KIB, 20)] {
        let test = TestAllocator::new();
        let blocks: Vec<_> = (0..count).map(|_| test.pin(bytes)).collect();
        let excess = held(&test) - count * bytes;
        assert!(excess <= 2 * MIB + count * 4 * KIB && held(&test) * 100 <= count * bytes * 123, "{bytes}: {excess}");
        test.assert_returns_everything_after(blocks);
    }
}

#[test]
fn n1_a_free_block_is_split_and_its_parts_merge() {
    let test = TestAllocator::new();
    let whole = test.pin(9 * MIB);
    let begin = at(&whole);
    drop(whole);
    let calls = test.calls_during(|| {
        let parts = [2, 3, 4].map(|mib| test.pin(mib * MIB));
        assert_eq!(parts.each_ref().map(at), [begin, begin + 2 * MIB, begin + 5 * MIB]);
        let [first, second, third] = parts;
        drop(first);
        drop(third);
        drop(second);
        assert_eq!(at(&test.pin(9 * MIB)), begin, "both neighbours were merged");
    });
    assert_eq!(calls, 0);
    // A remainder of a few pages is kept for its neighbours too.
    let most = test.pin(9 * MIB - 8 * KIB);
    assert_eq!(most.bytes(), 9 * MIB - 8 * KIB);
    drop(most);
    assert_eq!(at(&test.pin(9 * MIB)), begin);
    test.assert_returns_everything();
}

#[test]
fn n1_the_smallest_block_that_fits_is_split() {
    let test = TestAllocator::new();
    let [six, three, four] = [6, 3, 4].map(|mib| test.pin(mib * MIB));
    let places = [&six, &three, &four].map(at);
    drop((six, three, four));
    assert_eq!(at(&test.pin(4 * MIB - KIB)), places[2]);
    assert_eq!(at(&test.pin(4 * MIB + KIB)), places[0]);
    assert_eq!(at(&test.pin(2 * MIB)), places[1]);
    assert_eq!(test.pin(512 * KIB).bytes(), 512 * KIB);
    assert_eq!(test.pinning_calls(), 4, "small blocks have segments apart from large ones");
}

#[test]
fn n3_neighbours_do_not_merge_with_a_block_that_a_stream_uses() {
    let (test, [stream]) = TestAllocator::on(HostConfig::default().stepped(6), "").with_streams();
    drop(test.pin(6 * MIB));
    let [first, mut second, third] = [(); 3].map(|()| test.pin(2 * MIB));
    assert_eq!(test.pinning_calls(), 1);
    let begin = at(&first);
    // SAFETY: 1. no copy is queued yet.
    unsafe { second.as_mut_slice() }.fill(9);
    let target = test.allocate(2 * MIB, &stream);
    let hold = test.hold(&stream);
    test.upload(&target, &second, &stream);
    second.record_stream(&stream);
    drop((first, second, third));
    let mut others = [6, 2, 2].map(|mib| test.pin(mib * MIB));
    assert_eq!(test.pinning_calls(), 2, "the middle is in use, so six MiB do not fit");
    assert_eq!([at(&others[1]), at(&others[2])].map(|at| at - begin), [0, 4 * MIB], "the parts beside it serve");
    for other in &mut others {
        // SAFETY: 1. no device knows the memory.
        unsafe { other.as_mut_slice() }.fill(0xff);
    }
    let_pass(hold, &stream);
    assert_eq!(test.content(&target, &stream), Some(9), "the copy read what it was given");
    let [new, left, right] = others;
    drop((left, right));
    let again = test.pin(7 * MIB);
    let whole = test.pin(6 * MIB);
    assert_eq!(at(&whole), begin, "all three were merged");
    test.assert_returns_everything_after((new, again, whole, target, stream));
}

#[test]
fn surplus_segments_are_returned_before_a_new_one_is_made_where_memory_is_short() {
    let test = TestAllocator::new();
    let [partly, used] = [(); 2].map(|()| test.pin(2 * WHOLE));
    drop(partly);
    let partly = test.pin(WHOLE);
    drop((test.pin(3 * WHOLE), test.pin(4 * WHOLE)));
    assert_eq!((held(&test), test.device.calls(Call::FreePinned)), (11 * WHOLE, 0), "none is returned without need");
    test.device.fail_next(Call::AllocatePinned, 1, ErrorKind::OutOfMemory);
    let memory = test.pin(5 * WHOLE);
    assert_eq!(test.device.calls(Call::FreePinned), 2, "the two segments that were idle");
    assert_eq!(held(&test), 9 * WHOLE);
    test.assert_returns_everything_after((partly, used, memory));
}

#[test]
fn memory_at_its_limit_is_told_with_a_remedy_and_the_program_goes_on() {
    let test = TestAllocator::new();
    let kept = test.pin(WHOLE);
    for nth in 1..=2 {
        test.device.fail_next(Call::AllocatePinned, nth, ErrorKind::OutOfMemory);
    }
    let error = test.allocator.pinned().allocate(3 * WHOLE).expect_err("there is none");
    assert!(matches!(error, Error::OutOfPinnedMemory { .. }));
    assert!(error.to_string().ends_with("or raise what the system lets a process lock"), "{error}");
    drop((kept, test.pin(3 * WHOLE)));
    test.assert_returns_everything();
}

#[test]
fn blocks_above_the_largest_cached_size_return_to_the_driver() {
    for extra in ["", ",pinned_use_cuda_host_register:True"] {
        let test = TestAllocator::with(&format!("pinned_max_cached_size_mb:4{extra}"));
        let (small, large) = (test.pin(4 * MIB), test.pin(4 * MIB + 1));
        drop((small, large));
        assert_eq!(held(&test), 4 * MIB, "the larger one is gone");
        assert_eq!(test.pinning_calls(), 3);
        drop([MIB, 3 * MIB].map(|bytes| test.pin(bytes)));
        assert_eq!(test.pinning_calls(), 4, "others are cached");
        test.assert_returns_everything();
    }
    let test = TestAllocator::with("pinned_max_cached_size_mb:0");
    drop([(); 3].map(|()| test.pin(100)));
    assert_eq!((held(&test), test.pinning_calls()), (0, 6), "nothing is kept, and each has a page");
    test.allocator.set_config(&config(""));
    drop(test.pin(100));
    assert_eq!(held(&test), 2 * MIB);
    test.assert_returns_everything();
}

#[test]
fn a_block_that_is_not_cached_returns_after_its_uses() {
    let (test, [stream]) = TestAllocator::with("pinned_max_cached_size_mb:1").with_streams();
    let memory = test.pin(WHOLE);
    let hold = test.hold(&stream);
    memory.record_stream(&stream);
    drop(memory);
    assert_eq!(held(&test), WHOLE, "a stream uses it");
    let_pass(hold, &stream);
    let other = test.pin(WHOLE);
    assert_eq!((held(&test), test.device.calls(Call::FreePinned)), (WHOLE, 1));
    test.device.fail_next(Call::FreePinned, 1, ErrorKind::Other);
    drop(other);
    assert_eq!(held(&test), WHOLE, "the driver failed, and it serves others");
    assert_eq!(test.calls_of(Call::AllocatePinned, || drop(test.pin(WHOLE))), 0);
    test.assert_returns_everything_after(stream);
}

#[test]
fn a_free_that_must_not_wait_keeps_its_block() {
    let test = TestAllocator::with("pinned_max_cached_size_mb:1,never_block:True");
    drop(test.pin(WHOLE));
    assert_eq!((held(&test), test.device.calls(Call::FreePinned)), (WHOLE, 0));
    assert_eq!(test.allocator.pinned().empty_cache(), Ok(WHOLE));
}

#[test]
fn the_round_threshold_changes_nothing() {
    let test = TestAllocator::with("pinned_max_round_threshold_mb:128");
    assert_eq!(test.pin(5 * MIB + 1).bytes(), 5 * MIB + 4 * KIB);
    assert_eq!(test.pin(100 * KIB).bytes(), 100 * KIB);
}

#[test]
fn memory_of_one_segment_may_outlive_its_allocator() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let [first, second, third] = [(); 3].map(|()| test.pin(KIB));
    second.record_stream(&stream);
    let TestAllocator { device, allocator, .. } = test;
    drop((second, stream, allocator));
    assert_eq!(device.live().pinned, 1);
    drop(first);
    assert_eq!(device.live().pinned, 1, "another block is in use");
    drop(third);
    assert_eq!(device.live(), cachette_hal_host::Live::default());
}

#[test]
fn memory_by_address_stays_when_its_allocator_is_gone() {
    for text in ["", "pinned_reserve_segment_size_mb:8"] {
        let test = TestAllocator::with(text);
        let raw = test.allocator.pinned().allocate_raw(KIB).expect("there is room");
        drop([(); 2].map(|()| test.pin(KIB)));
        let TestAllocator { device, allocator, .. } = test;
        drop(allocator);
        assert_eq!(device.live().pinned, 1, "{text}");
        // SAFETY: no one has freed it.
        unsafe { raw.write_bytes(7, 1 << 10) };
    }
}

#[test]
fn pinned_memory_is_shown_on_one_line() {
    let test = TestAllocator::new();
    let memory = test.pin(1000);
    let shown = format!("PinnedAllocation {{ address: {:#x}, bytes: 1024, requested: 1000, .. }}", at(&memory));
    assert_eq!(format!("{memory:?}"), shown);
}
