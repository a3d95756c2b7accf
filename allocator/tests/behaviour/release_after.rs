//! `release_after`: memory that is free at once, behind a wait on the device.

use cachette::hal::{Call, ErrorKind};
use cachette_hal_host::HostConfig;

use crate::bed::{Bed, KIB, MIB, is_waiting, start};

#[test]
fn released_memory_serves_the_next_request_at_once() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let memory = bed.allocate(MIB, &stream);
    let address = memory.address();
    let hold = bed.hold(&side);
    bed.fill(&memory, 1, &side);
    memory.release_after(&[&side]).unwrap();
    assert_eq!(bed.stats().active.all.current, 0);
    let waits = bed.calls_of(Call::StreamWait, || {
        let next = bed.allocate(MIB, &stream);
        assert_eq!(next.address(), address);
        bed.fill(&next, 2, &stream);
        hold.release();
        assert_eq!(bed.content(&next, &stream), Some(2), "the old use came after the new");
    });
    assert_eq!(waits, 1);
    assert_eq!(bed.device.calls(Call::Poll), 0, "a wait on the device needs no question");
    bed.assert_sound();
}

#[test]
fn the_next_use_waits_for_every_stream_named() {
    let bed = Bed::new();
    let (stream, left, right) = (bed.stream(), bed.stream(), bed.stream());
    for slow in [&left, &right] {
        let memory = bed.allocate(MIB, &stream);
        let hold = bed.hold(slow);
        bed.fill(&memory, 1, slow);
        memory.release_after(&[&left, &right]).unwrap();
        let next = bed.allocate(MIB, &stream);
        bed.fill(&next, 2, &stream);
        hold.release();
        assert_eq!(bed.content(&next, &stream), Some(2));
    }
}

#[test]
fn the_owners_own_stream_needs_no_wait() {
    let bed = Bed::new();
    let stream = bed.stream();
    let memory = bed.allocate(MIB, &stream);
    let calls = bed.calls_during(|| {
        memory.release_after(&[&stream]).unwrap();
        drop(bed.allocate(MIB, &stream));
        bed.allocate(MIB, &stream).release_after(&[]).unwrap();
    });
    assert_eq!(calls, 0);
}

#[test]
fn what_is_left_of_a_split_waits_too() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let memory = bed.allocate(MIB, &stream);
    let hold = bed.hold(&side);
    bed.fill(&memory, 1, &side);
    memory.release_after(&[&side]).unwrap();
    let parts: Vec<_> = (0..4).map(|_| bed.allocate(256 * KIB, &stream)).collect();
    for part in &parts {
        bed.fill(part, 2, &stream);
    }
    hold.release();
    for part in &parts {
        assert_eq!(bed.content(part, &stream), Some(2));
    }
}

#[test]
fn what_it_is_merged_into_waits_too() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let front = bed.allocate(6 * MIB, &stream);
    let middle = bed.allocate(6 * MIB, &stream);
    let back = bed.allocate(6 * MIB, &stream);
    let (start, hold) = (front.address(), bed.hold(&side));
    bed.fill(&middle, 1, &side);
    middle.release_after(&[&side]).unwrap();
    drop((front, back));
    let whole = bed.allocate(20 * MIB, &stream);
    assert_eq!(whole.address(), start);
    bed.fill(&whole, 2, &stream);
    hold.release();
    assert_eq!(bed.content(&whole, &stream), Some(2));
}

#[test]
fn recorded_streams_are_waited_for_like_those_named() {
    let bed = Bed::new();
    let (stream, recorded, named) = (bed.stream(), bed.stream(), bed.stream());
    let memory = bed.allocate(MIB, &stream);
    let hold = bed.hold(&recorded);
    bed.fill(&memory, 1, &recorded);
    memory.record_stream(&recorded);
    memory.release_after(&[&named]).unwrap();
    let next = bed.allocate(MIB, &stream);
    bed.fill(&next, 2, &stream);
    hold.release();
    assert_eq!(bed.content(&next, &stream), Some(2));
}

#[test]
fn released_memory_is_given_back_only_after_the_wait() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let memory = bed.allocate(12 * MIB, &stream);
    let hold = bed.hold(&side);
    bed.fill(&memory, 1, &side);
    memory.release_after(&[&side]).unwrap();
    let allocator = bed.allocator.clone();
    let emptied = start(move || allocator.empty_cache());
    assert!(is_waiting(&emptied));
    hold.release();
    assert_eq!(emptied.recv().unwrap(), Ok(12 * MIB));
    bed.assert_sound();
}

#[test]
fn a_wait_is_made_once_for_each_stream_however_many_blocks_it_used() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let blocks: Vec<_> = (0..200).map(|_| bed.allocate(KIB, &stream)).collect();
    for block in blocks {
        block.release_after(&[&side]).unwrap();
    }
    let waits = bed.calls_of(Call::StreamWait, || {
        let again: Vec<_> = (0..200).map(|_| bed.allocate(KIB, &stream)).collect();
        drop(again);
    });
    assert!(waits <= 200, "200 requests made the stream wait {waits} times");
    assert!(bed.device.live().events <= 200);
}

#[test]
fn events_of_released_memory_are_used_again() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    for _ in 0..300 {
        let memory = bed.allocate(KIB, &stream);
        memory.release_after(&[&side]).unwrap();
    }
    assert!(bed.device.calls(Call::CreateEvent) <= 2, "{} events", bed.device.calls(Call::CreateEvent));
    drop((stream, side));
    bed.assert_returns_everything();
}

#[test]
fn the_block_freed_last_waits_like_any_other() {
    for raw in [false, true] {
        let bed = Bed::new();
        let (stream, side) = (bed.stream(), bed.stream());
        // After enough turns the thread owns the heap's lock, and takes the block freed last without a search.
        for _ in 0..10_000 {
            drop(bed.allocate(MIB, &stream));
        }
        let memory = bed.allocate(MIB, &stream);
        let address = memory.address();
        let hold = bed.hold(&side);
        bed.fill(&memory, 1, &side);
        memory.release_after(&[&side]).unwrap();
        let waits = bed.calls_of(Call::StreamWait, || {
            if raw {
                assert_eq!(bed.allocate_raw(MIB, &stream), address);
            } else {
                let next = bed.allocate(MIB, &stream);
                assert_eq!(next.address(), address);
            }
        });
        assert_eq!(waits, 1, "raw: {raw}");
        hold.release();
    }
}

#[test]
fn memory_by_address_waits_like_any_other() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let memory = bed.allocate(MIB, &stream);
    let address = memory.address();
    let hold = bed.hold(&side);
    memory.release_after(&[&side]).unwrap();
    let waits = bed.calls_of(Call::StreamWait, || {
        assert_eq!(bed.allocate_raw(MIB, &stream), address);
    });
    assert_eq!(waits, 1);
    hold.release();
}

#[test]
fn a_wait_that_failed_is_made_by_the_next_request() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let memory = bed.allocate(MIB, &stream);
    let address = memory.address();
    let hold = bed.hold(&side);
    bed.fill(&memory, 1, &side);
    memory.release_after(&[&side]).unwrap();
    bed.device.fail_next(Call::StreamWait, 1, ErrorKind::Other);
    assert!(bed.allocator.allocate(MIB, &stream).is_err());
    let next = bed.allocate(MIB, &stream);
    assert_eq!(next.address(), address);
    bed.fill(&next, 2, &stream);
    hold.release();
    side.synchronize().unwrap();
    assert_eq!(bed.content(&next, &stream), Some(2));
}

#[test]
fn a_stream_of_another_driver_is_waited_for_by_polling() {
    let (bed, foreign) = (Bed::new(), Bed::new());
    let (stream, side) = (bed.stream(), foreign.stream());
    let memory = bed.allocate(MIB, &stream);
    let address = memory.address();
    let hold = foreign.hold(&side);
    memory.release_after(&[&side]).unwrap();
    let other = bed.allocate(MIB, &stream);
    assert_ne!(other.address(), address, "the other driver still uses it");
    assert_eq!(bed.device.calls(Call::StreamWait), 0);
    hold.release();
    side.synchronize().unwrap();
    assert_eq!(bed.allocate(MIB, &stream).address(), address);
    bed.assert_sound();
}

#[test]
fn neighbours_behind_one_stream_are_waited_for_once() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let front = bed.allocate(6 * MIB, &stream);
    let back = bed.allocate(6 * MIB, &stream);
    let start = front.address();
    back.release_after(&[&side]).unwrap();
    front.release_after(&[&side]).unwrap();
    let waits = bed.calls_of(Call::StreamWait, || {
        assert_eq!(bed.allocate(12 * MIB, &stream).address(), start);
    });
    assert_eq!(waits, 1, "the later point of a stream covers the earlier");
}

#[test]
fn the_parts_of_a_block_make_their_stream_wait_once() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    bed.allocate(MIB, &stream).release_after(&[&side]).unwrap();
    let waits = bed.calls_of(Call::StreamWait, || {
        let parts = [(); 4].map(|()| bed.allocate(256 * KIB, &stream));
        drop(parts);
    });
    assert_eq!(waits, 1, "the stream waited for that point before");
}

#[test]
fn a_driver_whose_free_does_not_wait_frees_nothing_in_use() {
    let bed = Bed::on(HostConfig::default().free_without_waiting(), "");
    let (stream, side) = (bed.stream(), bed.stream());
    let memory = bed.allocate(12 * MIB, &stream);
    let hold = bed.hold(&side);
    bed.fill(&memory, 7, &side);
    memory.release_after(&[&side]).unwrap();
    let allocator = bed.allocator.clone();
    let emptied = start(move || allocator.empty_cache());
    assert!(is_waiting(&emptied), "the other stream has yet to write it");
    assert_eq!(bed.device.calls(Call::Free), 0);
    hold.release();
    assert_eq!(emptied.recv().unwrap(), Ok(12 * MIB));
    side.synchronize().expect("the write found its memory");
    bed.assert_sound();
}
