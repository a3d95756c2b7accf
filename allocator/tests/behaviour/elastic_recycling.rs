//! Idle chunks are moved to other addresses, never before their last use has ended, and no request waits for that.

use std::sync::Arc;

use cachette::hal::Call;
use cachette_hal_host::{Hold, HostConfig};

use crate::fixture::threads::in_time;
use crate::fixture::{Allocation, MIB, Stream, TestAllocator, let_pass};

#[test]
fn chunks_freed_on_a_stream_serve_a_larger_request_elsewhere() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let first = test.allocate(8 * MIB, &stream);
    let kept = test.allocate(4 * MIB, &stream);
    let third = test.allocate(4 * MIB, &stream);
    let last = test.allocate(2 * MIB, &stream);
    test.fill(&kept, 7, &stream);
    drop((first, third));
    let before = test.device.physical_bytes();
    let created = test.calls_of(Call::CreateBacking, || {
        let larger = test.allocate(12 * MIB, &stream);
        test.fill(&larger, 9, &stream);
        assert_eq!(test.content(&larger, &stream), Some(9));
        assert_eq!(test.content(&kept, &stream), Some(7));
    });
    assert_eq!(created, 0);
    assert_eq!(test.device.physical_bytes(), before);
    test.assert_elastic_sound();
    drop((kept, last));
}

#[test]
fn chunks_stay_without_safe_aliases() {
    let host = HostConfig::default().stepped(5).without_aliases();
    let (test, [stream]) = TestAllocator::elastic_on(host, "").with_streams();
    let first = test.allocate(8 * MIB, &stream);
    let kept = test.allocate(2 * MIB, &stream);
    drop(first);
    drop(test.allocate(10 * MIB, &stream));
    assert_eq!(test.device.physical_bytes(), 20 * MIB);
    test.assert_elastic_sound();
    drop(kept);
    test.assert_returns_everything_after(stream);
}

#[test]
fn chunks_of_an_idle_stream_serve_others_and_held_ones_do_not() {
    let (test, [one, two]) = TestAllocator::elastic("").with_streams();
    let memory = test.allocate(8 * MIB, &one);
    test.fill(&memory, 1, &one);
    let hold = test.hold(&one);
    drop(memory);
    let while_held = test.allocate(8 * MIB, &two);
    assert_eq!(test.device.physical_bytes(), 16 * MIB);
    hold.release();
    test.device.run_until_idle();
    let after = test.allocate(8 * MIB, &two);
    assert_eq!(test.device.physical_bytes(), 16 * MIB, "what came idle serves");
    test.assert_elastic_sound();
    drop((while_held, after));
    assert_eq!(test.stats().num_sync_all_streams, 0);
}

#[test]
fn old_addresses_are_unmapped_after_the_work_that_uses_them() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let first = test.allocate(8 * MIB, &stream);
    let kept = test.allocate(2 * MIB, &stream);
    let hold = test.hold(&stream);
    test.fill(&first, 1, &stream);
    drop(first);
    let unmapped = test.calls_of(Call::Unmap, || {
        let moved = test.allocate(10 * MIB, &stream);
        test.fill(&moved, 2, &stream);
        for _ in 0..3 {
            drop(test.allocate(12 * MIB, &stream));
            test.allocator.empty_cache().expect("nothing fails");
        }
        assert!(test.device.live().mappings > 6, "old and new addresses are mapped");
        drop(moved);
    });
    assert_eq!(unmapped, 0, "the stream has not come so far");
    hold.release();
    test.device.run_until_idle();
    test.allocator.empty_cache().expect("nothing fails");
    assert_eq!(test.device.live().mappings, 1);
    assert_eq!(test.device.physical_bytes(), 2 * MIB);
    test.assert_elastic_sound();
    drop(kept);
}

#[test]
fn memory_that_another_stream_uses_does_not_move() {
    let (test, [one, two]) = TestAllocator::elastic("").with_streams();
    let hold = test.free_in_use(test.allocate(8 * MIB, &one), &two);
    let other = test.allocate(10 * MIB, &one);
    assert_eq!(test.device.physical_bytes(), 18 * MIB);
    hold.release();
    test.device.run_until_idle();
    let more = test.allocate(8 * MIB, &one);
    assert_eq!(test.device.physical_bytes(), 18 * MIB);
    drop((other, more));
}

#[test]
fn no_request_waits_for_a_held_stream() {
    let (test, [busy, free]) = TestAllocator::elastic_on(HostConfig::default(), "").with_streams();
    let test = Arc::new(test);
    let memory = test.allocate(8 * MIB, &busy);
    let kept = test.allocate(2 * MIB, &busy);
    let hold = test.hold(&busy);
    test.fill(&memory, 1, &busy);
    drop(memory);
    let (within, done) = (Arc::clone(&test), (busy.clone(), free.clone()));
    let served = in_time(move || {
        let (busy, free) = done;
        let grown = within.allocate(10 * MIB, &busy);
        let apart = within.allocate(10 * MIB, &free);
        drop(grown);
        within.allocator.empty_cache().expect("nothing fails");
        let again = within.allocate(30 * MIB, &busy);
        drop((apart, again));
        within.allocator.empty_cache().expect("nothing fails")
    });
    assert!(served.is_some(), "something waits for the held stream");
    assert_eq!(test.stats().num_sync_all_streams, 2, "the two calls of `empty_cache`");
    assert_eq!(test.device.calls(Call::Wait), 0);
    assert_eq!(test.device.calls(Call::Synchronize), 0);
    let_pass(hold, &busy);
    drop(kept);
    test.allocator.empty_cache().expect("nothing fails");
    test.allocator.check().expect("every invariant holds");
}

#[test]
fn every_alias_goes_whichever_heap_is_asked_first() {
    let (test, [one, two]) = TestAllocator::elastic("").with_streams();
    let anchor = test.allocate(2 * MIB, &one);
    drop(test.allocate(8 * MIB, &two));
    // The first stream's heap comes first, and has what the second's still maps.
    let memory = test.allocate(8 * MIB, &one);
    assert_eq!(test.device.physical_bytes(), 10 * MIB);
    drop(memory);
    assert_eq!(test.allocator.empty_cache(), Ok(8 * MIB));
    test.assert_elastic_sound();
    assert_eq!(test.device.live().mappings, 1);
    drop(anchor);
}

#[test]
fn a_stream_whose_owner_is_gone_still_lends_its_memory() {
    let (test, [one]) = TestAllocator::elastic("").with_streams();
    let memory = test.allocate(8 * MIB, &one);
    drop(one);
    drop(memory);
    let two = test.stream();
    let other = test.allocate(8 * MIB, &two);
    assert_eq!(test.device.physical_bytes(), 8 * MIB);
    test.assert_elastic_sound();
    drop(other);
    test.assert_returns_everything_after(two);
}

#[test]
fn elastic_memory_outlives_its_allocator() {
    let (test, [one, two]) = TestAllocator::elastic("").with_streams();
    drop(test.allocate(8 * MIB, &one));
    let kept = test.allocate(6 * MIB, &two);
    test.fill(&kept, 3, &two);
    let TestAllocator { device, allocator, .. } = test;
    drop((allocator, one, two));
    assert!(device.physical_bytes() >= 6 * MIB);
    drop(kept);
    assert_eq!(device.live(), cachette_hal_host::Live::default());
    assert_eq!(device.physical_bytes(), 0);
}

#[test]
fn pending_memory_whose_events_have_passed_is_lent() {
    let (test, [owner, side, late]) = TestAllocator::elastic("").with_streams();
    let memory = test.allocate(8 * MIB, &owner);
    memory.record_stream(&side);
    test.fill(&memory, 1, &side);
    drop(memory);
    test.device.run_until_idle();
    drop(test.allocate(8 * MIB, &late));
    assert_eq!(test.device.physical_bytes(), 8 * MIB, "it moved although its owner asked for nothing");
}

/// An allocator on a stepped device that maps nothing twice.
fn refusing() -> TestAllocator {
    TestAllocator::elastic_on(HostConfig::default().stepped(5).refusing_aliases(1), "")
}

#[test]
fn a_chunk_that_cannot_be_mapped_twice_is_unmapped_first() {
    let (test, [stream, other]) = refusing().with_streams();
    let [first, foreign] = [&stream, &other].map(|stream| test.allocate(8 * MIB, stream));
    let [kept, also] = [&stream, &other].map(|stream| test.allocate(2 * MIB, stream));
    test.fill(&kept, 1, &stream);
    test.fill(&also, 2, &other);
    test.device.run_until_idle();
    drop((first, foreign));
    let large = test.allocate(18 * MIB, &stream);
    assert_eq!(test.device.physical_bytes(), 22 * MIB, "16 MiB moved");
    test.fill(&large, 3, &stream);
    test.device.run_until_idle();
    for (memory, byte, stream) in [(&kept, 1, &stream), (&also, 2, &other), (&large, 3, &stream)] {
        assert_eq!(test.content(memory, stream), Some(byte));
    }
    test.assert_elastic_sound();
    test.assert_returns_everything_after((kept, also, large, stream, other));
}

#[test]
fn a_chunk_is_not_unmapped_while_a_guard_protects_it() {
    let (test, [stream, side]) = refusing().with_streams();
    let first = test.allocate(8 * MIB, &stream);
    let kept = test.allocate(2 * MIB, &stream);
    let hold = test.hold(&side);
    first.release_after(&[&side]).expect("nothing fails");
    let large = test.allocate(10 * MIB, &stream);
    assert_eq!(test.device.physical_bytes(), 20 * MIB, "the side stream may use the chunks");
    hold.release();
    test.device.run_until_idle();
    let larger = test.allocate(12 * MIB, &stream);
    assert_eq!(test.device.physical_bytes(), 24 * MIB, "8 MiB moved");
    test.assert_returns_everything_after((kept, large, larger, stream, side));
}

#[test]
fn a_busy_chunk_that_cannot_be_mapped_twice_stays_in_place() {
    let (test, [stream]) = refusing().with_streams();
    let first = test.allocate(8 * MIB, &stream);
    let kept = test.allocate(2 * MIB, &stream);
    let hold = test.hold(&stream);
    drop(first);
    let mut large = Vec::new();
    let tries = test.calls_of(Call::Map, || large.push(test.allocate(10 * MIB, &stream)));
    assert!(tries > 5, "some were refused");
    assert_eq!(test.device.physical_bytes(), 20 * MIB);
    let again = test.calls_of(Call::Map, || large.push(test.allocate(12 * MIB, &stream)));
    assert_eq!(again, 6, "what was refused is not tried again");
    let before = test.calls_of(Call::Map, || drop(test.allocate(8 * MIB, &stream)));
    assert_eq!(before, 0, "it serves where it is");
    hold.release();
    test.device.run_until_idle();
    drop(large);
    test.assert_elastic_sound();
    drop(kept);
    test.assert_returns_everything_after(stream);
}

#[test]
fn chunks_that_stay_are_given_back_where_memory_is_scarce() {
    let host = HostConfig::default().stepped(5).refusing_aliases(1);
    let (test, [stream]) = TestAllocator::elastic_on(host.capacity(24 * MIB), "").with_streams();
    for _ in 0..3 {
        let first = test.allocate(8 * MIB, &stream);
        let kept = test.allocate(2 * MIB, &stream);
        drop(first);
        let large = test.allocate(20 * MIB, &stream);
        test.fill(&large, 3, &stream);
        assert_eq!(test.content(&large, &stream), Some(3));
        drop((large, kept));
        test.assert_elastic_sound();
    }
    test.assert_returns_everything_after(stream);
}

/// Memory of `stream` that `side` is yet to copy, and that is free behind that, beside live memory. Returns the copy, the
/// live memory, and what holds `side`.
fn read_by_a_held_stream(test: &TestAllocator, mib: u64, stream: &Stream, side: &Stream) -> ([Allocation; 2], Hold) {
    let memory = test.allocate(mib * MIB, stream);
    let kept = test.allocate(2 * MIB, stream);
    let copy = test.allocate(mib * MIB, side);
    test.fill(&memory, 5, stream);
    test.device.run_until_idle();
    let hold = test.hold(side);
    test.copy(&copy, &memory, side);
    memory.release_after(&[side]).expect("nothing fails");
    ([copy, kept], hold)
}

#[test]
fn a_chunk_that_moves_keeps_its_guards() {
    let (test, [stream, side]) = TestAllocator::elastic("").with_streams();
    let ([copy, _kept], hold) = read_by_a_held_stream(&test, 6, &stream, &side);
    let before = test.device.physical_bytes();
    let moved = test.allocate(8 * MIB, &stream);
    assert_eq!(test.device.physical_bytes() - before, 2 * MIB, "chunks moved");
    test.fill(&moved, 6, &stream);
    // Everything runs that does not wait for the held stream.
    test.device.run_until_idle();
    hold.release();
    assert_eq!(test.content(&copy, &side), Some(5), "the read comes before the next use");
    assert_eq!(test.content(&moved, &stream), Some(6));
    test.assert_elastic_sound();
}

#[test]
fn what_is_left_of_a_block_whose_chunk_moved_keeps_its_guards() {
    let (test, [stream, side, borrower]) = TestAllocator::elastic("").with_streams();
    let ([copy, _kept], hold) = read_by_a_held_stream(&test, 8, &stream, &side);
    let moved = test.allocate(2 * MIB, &borrower);
    assert_eq!(test.device.physical_bytes(), 18 * MIB, "a chunk moved");
    // The borrower waits, and the owner of what is left has not waited yet.
    let left = test.allocate(6 * MIB, &stream);
    test.fill(&moved, 6, &borrower);
    test.fill(&left, 6, &stream);
    // Everything runs that does not wait for the held stream.
    test.device.run_until_idle();
    hold.release();
    assert_eq!(test.content(&copy, &side), Some(5));
    assert_eq!(test.device.physical_bytes(), 18 * MIB);
}

#[test]
fn memory_that_fills_a_hole_waits_for_nothing_that_stood_there() {
    let (test, [stream, side]) = TestAllocator::elastic("").with_streams();
    let memory = test.allocate(4 * MIB, &stream);
    let address = memory.address();
    memory.release_after(&[&side]).expect("nothing fails");
    test.device.run_until_idle();
    assert_eq!(test.allocator.empty_cache(), Ok(4 * MIB));
    let waits = test.calls_of(Call::StreamWait, || {
        assert_eq!(test.allocate(4 * MIB, &stream).address(), address);
    });
    assert_eq!(waits, 0);
}
