//! `release_after`: memory that is free at once, behind a wait on the device.

use cachette::hal::Call;
use cachette::{Error, PointerProblem};

use crate::fixture::memory::Interface;
use crate::fixture::threads::{is_waiting, start};
use crate::fixture::{KIB, MIB, TestAllocator, let_pass};

#[test]
fn released_memory_serves_the_next_request_at_once() {
    let test = TestAllocator::new();
    let (stream, side, memory, hold) = test.used_memory(MIB);
    let address = memory.address();
    memory.release_after(&[&side]).unwrap();
    assert_eq!(test.stats().active.all.current, 0);
    let waits = test.calls_of(Call::StreamWait, || {
        let next = test.allocate(MIB, &stream);
        assert_eq!(next.address(), address);
        test.fill(&next, 2, &stream);
        hold.release();
        assert_eq!(test.content(&next, &stream), Some(2), "the old use came after the new");
    });
    assert_eq!(waits, 1);
    assert_eq!(test.device.calls(Call::Poll), 0, "a wait on the device needs no question");
    test.assert_sound();
}

#[test]
fn memory_known_by_its_address_is_released_behind_a_stream() {
    let test = TestAllocator::new();
    let (stream, side, memory, hold) = test.used_memory(MIB);
    let address = memory.into_raw();
    // SAFETY: the stream is the allocator's own.
    let free = || unsafe { test.allocator.free_raw_after(address, side.handle()) };
    free().unwrap();
    let twice = PointerProblem::Free;
    assert_eq!(free(), Err(Error::InvalidPointer { address, why: twice }));
    let next = test.allocate(MIB, &stream);
    assert_eq!(next.address(), address);
    test.fill(&next, 2, &stream);
    hold.release();
    assert_eq!(test.content(&next, &stream), Some(2), "the old use came after the new");
    let address = next.into_raw();
    assert_eq!(test.allocator.requested_at(address), Ok(MIB));
    let calls = test.calls_during(|| {
        // SAFETY: as above.
        unsafe { test.allocator.free_raw_after(address, stream.handle()) }.unwrap();
    });
    assert_eq!(calls, 0, "its own stream needs no wait");
    test.assert_sound();
}

#[test]
fn the_next_use_waits_for_every_stream_named_or_recorded() {
    let (test, [stream, left, right, recorded]) = TestAllocator::new().with_streams();
    for slow in [&left, &right, &recorded] {
        let memory = test.allocate(MIB, &stream);
        let hold = test.hold(slow);
        test.fill(&memory, 1, slow);
        memory.record_stream(&recorded);
        memory.release_after(&[&left, &right]).unwrap();
        let next = test.allocate(MIB, &stream);
        test.fill(&next, 2, &stream);
        hold.release();
        assert_eq!(test.content(&next, &stream), Some(2));
    }
}

#[test]
fn the_owners_own_stream_needs_no_wait() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let memory = test.allocate(MIB, &stream);
    let calls = test.calls_during(|| {
        memory.release_after(&[&stream]).unwrap();
        drop(test.allocate(MIB, &stream));
        test.allocate(MIB, &stream).release_after(&[]).unwrap();
    });
    assert_eq!(calls, 0);
}

#[test]
fn what_is_left_of_a_split_waits_too() {
    let test = TestAllocator::new();
    let (stream, side, memory, hold) = test.used_memory(MIB);
    memory.release_after(&[&side]).unwrap();
    let parts: Vec<_> = (0..4).map(|_| test.allocate(256 * KIB, &stream)).collect();
    for part in &parts {
        test.fill(part, 2, &stream);
    }
    hold.release();
    for part in &parts {
        assert_eq!(test.content(part, &stream), Some(2));
    }
}

#[test]
fn what_it_is_merged_into_waits_too() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let front = test.allocate(6 * MIB, &stream);
    let middle = test.allocate(6 * MIB, &stream);
    let back = test.allocate(6 * MIB, &stream);
    let (start, hold) = (front.address(), test.hold(&side));
    test.fill(&middle, 1, &side);
    middle.release_after(&[&side]).unwrap();
    drop((front, back));
    let whole = test.allocate(20 * MIB, &stream);
    assert_eq!(whole.address(), start);
    test.fill(&whole, 2, &stream);
    hold.release();
    assert_eq!(test.content(&whole, &stream), Some(2));
}

#[test]
fn the_block_freed_last_waits_like_any_other() {
    for interface in Interface::BOTH {
        // After enough turns the thread owns the heap's lock, and takes the block freed last without a search.
        for turns in [0, 10_000] {
            let (test, [stream, side]) = TestAllocator::new().with_streams();
            for _ in 0..turns {
                drop(test.allocate(MIB, &stream));
            }
            let memory = test.allocate(MIB, &stream);
            let address = memory.address();
            let hold = test.hold(&side);
            test.fill(&memory, 1, &side);
            memory.release_after(&[&side]).unwrap();
            let waits = test.calls_of(Call::StreamWait, || {
                assert_eq!(test.allocate_by(interface, MIB, &stream).address(), address);
            });
            assert_eq!(waits, 1, "{interface:?}, {turns}");
            hold.release();
        }
    }
}

#[test]
fn a_stream_of_another_driver_is_waited_for_by_polling() {
    let (test, foreign) = (TestAllocator::new(), TestAllocator::new());
    let (stream, side) = (test.stream(), foreign.stream());
    let memory = test.allocate(MIB, &stream);
    let address = memory.address();
    let hold = foreign.hold(&side);
    memory.release_after(&[&side]).unwrap();
    let other = test.allocate(MIB, &stream);
    assert_ne!(other.address(), address, "the other driver still uses it");
    assert_eq!(test.device.calls(Call::StreamWait), 0);
    let_pass(hold, &side);
    assert_eq!(test.allocate(MIB, &stream).address(), address);
    test.assert_sound();
}

#[test]
fn neighbours_behind_one_stream_are_waited_for_once() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let front = test.allocate(6 * MIB, &stream);
    let back = test.allocate(6 * MIB, &stream);
    let start = front.address();
    back.release_after(&[&side]).unwrap();
    front.release_after(&[&side]).unwrap();
    let waits = test.calls_of(Call::StreamWait, || {
        assert_eq!(test.allocate(12 * MIB, &stream).address(), start);
    });
    assert_eq!(waits, 1, "the later point of a stream covers the earlier");
}

#[test]
fn the_parts_of_a_block_make_their_stream_wait_once() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    test.allocate(MIB, &stream).release_after(&[&side]).unwrap();
    let waits = test.calls_of(Call::StreamWait, || {
        let parts = [(); 4].map(|()| test.allocate(256 * KIB, &stream));
        drop(parts);
    });
    assert_eq!(waits, 1, "the stream waited for that point before");
}

#[test]
fn a_driver_whose_free_does_not_wait_frees_nothing_in_use() {
    let test = TestAllocator::new();
    let (_stream, side, memory, hold) = test.used_memory(12 * MIB);
    memory.release_after(&[&side]).unwrap();
    let allocator = test.allocator.clone();
    let emptied = start(move || allocator.empty_cache());
    assert!(is_waiting(&emptied), "the other stream has yet to write it");
    assert_eq!(test.device.calls(Call::Free), 0);
    hold.release();
    assert_eq!(emptied.recv().unwrap(), Ok(12 * MIB));
    side.synchronize().expect("the write found its memory");
    test.assert_sound();
}
