//! When the device is full: what is given back, what is waited for, and that work goes on after a failure.

use cachette::Error;

use crate::bed::{Bed, KIB, MIB};

#[test]
fn a_half_fits_once_and_again_after_it_was_dropped() {
    let bed = Bed::of(64 * MIB, "");
    let stream = bed.stream();
    let half = bed.allocate(40 * MIB, &stream);
    let error = bed.allocator.allocate(40 * MIB, &stream).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    drop(half);
    drop(bed.allocate(40 * MIB, &stream));
    assert_eq!(bed.stats().num_ooms, 1);
    bed.assert_sound();
}

#[test]
fn m10_memory_cached_for_one_stream_is_given_back_for_another() {
    let bed = Bed::of(64 * MIB, "");
    let streams: Vec<_> = (0..4).map(|_| bed.stream()).collect();
    for stream in streams.iter().cycle().take(20) {
        drop(bed.allocate(50 * MIB, stream));
    }
    let stats = bed.stats();
    assert_eq!((stats.segment.all.current, stats.num_ooms), (1, 0));
    assert_eq!(stats.num_alloc_retries, 19);
    bed.assert_sound();
}

#[test]
fn m18_after_exhaustion_work_goes_on() {
    let bed = Bed::of(64 * MIB, "");
    let stream = bed.stream();
    let memory = bed.allocate(MIB, &stream);
    bed.fill(&memory, 5, &stream);
    for _ in 0..10 {
        assert!(bed.allocator.allocate(100 * MIB, &stream).is_err());
    }
    assert_eq!(bed.content(&memory, &stream), Some(5));
    assert_eq!(bed.stats().num_ooms, 10);
    let more = bed.allocate(60 * MIB, &stream);
    bed.fill(&more, 6, &stream);
    assert_eq!(bed.content(&more, &stream), Some(6));
    drop((memory, more));
    bed.assert_sound();
}

#[test]
fn waiting_blocks_are_reclaimed_instead_of_running_out() {
    let bed = Bed::of(64 * MIB, "");
    let (stream, side) = (bed.stream(), bed.stream());
    for byte in 0..60 {
        let memory = bed.allocate(12 * MIB, &stream);
        bed.fill(&memory, byte, &side);
        memory.record_stream(&side);
    }
    assert_eq!(bed.stats().num_ooms, 0);
    // As many segments as there is room for, and each of them was used again and again.
    assert_eq!(bed.stats().num_device_alloc, 5);
    side.synchronize().unwrap();
    bed.assert_sound();
}

#[test]
fn nothing_live_is_overwritten_when_waiting_blocks_are_reclaimed() {
    let bed = Bed::of(48 * MIB, "");
    let (stream, side) = (bed.stream(), bed.stream());
    let hold = bed.hold(&side);
    let waiting: Vec<_> = (0..3).map(|_| bed.allocate(12 * MIB, &stream)).collect();
    let live = bed.allocate(12 * MIB, &stream);
    bed.fill(&live, 9, &stream);
    for memory in waiting {
        bed.fill(&memory, 1, &side);
        memory.record_stream(&side);
    }
    let (allocator, on) = (bed.allocator.clone(), stream.clone());
    let next = crate::bed::start(move || allocator.allocate(12 * MIB, &on));
    assert!(crate::bed::is_waiting(&next));
    hold.release();
    let next = next.recv().unwrap().unwrap();
    bed.fill(&next, 2, &stream);
    side.synchronize().unwrap();
    assert_eq!(bed.content(&next, &stream), Some(2));
    assert_eq!(bed.content(&live, &stream), Some(9));
    assert!(bed.stats().num_sync_all_streams > 0);
}

#[test]
fn small_requests_survive_a_full_device() {
    let bed = Bed::of(22 * MIB, "");
    let stream = bed.stream();
    let large = bed.allocate(20 * MIB, &stream);
    let small: Vec<_> = (0..2048).map(|_| bed.allocate(KIB, &stream)).collect();
    assert!(bed.allocator.allocate(512, &stream).is_err());
    drop(small);
    assert!(bed.allocator.allocate(512, &stream).is_ok());
    drop(large);
    bed.assert_sound();
}
