//! Memory belongs to a stream, and other streams' uses keep it from being used again.

use cachette::Error;
use cachette::hal::{Call, Device, StreamRef};
use cachette_hal_host::HostConfig;

use crate::bed::{Bed, GIB, KIB, MIB};

#[test]
fn s10_a_freed_block_serves_its_own_stream_again_without_a_driver_call() {
    let bed = Bed::new();
    let stream = bed.stream();
    for bytes in [1, KIB, MIB, 3 * MIB, 12 * MIB] {
        let address = bed.allocate(bytes, &stream).address();
        let calls = bed.calls_during(|| {
            for _ in 0..100 {
                assert_eq!(bed.allocate(bytes, &stream).address(), address);
            }
        });
        assert_eq!(calls, 0, "{bytes}");
    }
}

#[test]
fn s10_a_block_never_serves_another_stream() {
    let bed = Bed::new();
    let streams: Vec<_> = (0..3).map(|_| bed.stream()).collect();
    let default = bed.allocator.default_stream().unwrap();
    for bytes in [KIB, 2 * MIB, 24 * MIB] {
        let freed: Vec<_> = streams.iter().map(|stream| bed.allocate(bytes, stream).address()).collect();
        let memory = bed.allocate(bytes, &default);
        assert!(!freed.contains(&memory.address()), "{bytes}");
        assert_eq!(memory.stream(), default.handle());
    }
    // Four streams, three sizes that share no segment.
    assert_eq!(bed.stats().segment.all.current, 12);
    bed.assert_sound();
}

#[test]
fn s10_work_of_one_stream_keeps_its_order_when_memory_is_used_again() {
    let bed = Bed::new();
    let stream = bed.stream();
    let hold = bed.hold(&stream);
    let first = bed.allocate(MIB, &stream);
    bed.fill(&first, 1, &stream);
    let address = first.address();
    drop(first);
    let second = bed.allocate(MIB, &stream);
    assert_eq!(second.address(), address);
    bed.fill(&second, 2, &stream);
    hold.release();
    assert_eq!(bed.content(&second, &stream), Some(2));
}

#[test]
fn s10_every_one_of_many_streams_keeps_its_own() {
    let bed = Bed::phantom(64 << 30, "");
    let streams: Vec<_> = (0..700).map(|_| bed.stream()).collect();
    let homes: Vec<_> = streams.iter().map(|stream| bed.allocate_raw(KIB, stream)).collect();
    for address in &homes {
        bed.allocator.free_raw(*address).unwrap();
    }
    for (stream, address) in streams.iter().zip(&homes).rev() {
        assert_eq!(bed.allocate(KIB, stream).address(), *address);
        // SAFETY: 1. the stream is this allocator's own. 2. it lives as long as it.
        let adopted = unsafe { bed.allocator.adopt_stream(stream.handle()) }.unwrap();
        assert_eq!(bed.allocate(KIB, &adopted).address(), *address);
    }
    assert_eq!(bed.stats().segment.all.current, 700);
    bed.assert_sound();
}

#[test]
fn e1_the_streams_own_use_needs_no_record() {
    let bed = Bed::new();
    let stream = bed.stream();
    let memory = bed.allocate(KIB, &stream);
    let address = memory.address();
    let hold = bed.hold(&stream);
    let calls = bed.calls_during(|| {
        memory.record_stream(&stream);
        drop(memory);
        assert_eq!(bed.allocate(KIB, &stream).address(), address);
    });
    assert_eq!(calls, 0);
    hold.release();
}

#[test]
fn e1_e2_a_block_waits_for_the_stream_that_was_recorded() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let memory = bed.allocate(MIB, &stream);
    let address = memory.address();
    let hold = bed.hold(&side);
    bed.fill(&memory, 7, &side);
    memory.record_stream(&side);
    drop(memory);
    let other = bed.allocate(MIB, &stream);
    assert_ne!(other.address(), address);
    bed.fill(&other, 8, &stream);
    hold.release();
    side.synchronize().unwrap();
    let again = bed.allocate(MIB, &stream);
    assert_eq!(again.address(), address);
    assert_eq!(bed.content(&again, &stream), Some(7));
    assert_eq!(bed.content(&other, &stream), Some(8));
    drop((again, other));
    bed.assert_sound();
}

#[test]
fn e1_a_recorded_use_survives_the_loss_of_every_other_handle() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let memory = bed.allocate(MIB, &stream);
    let address = memory.address();
    let hold = bed.hold(&side);
    memory.record_stream(&side);
    drop(side);
    drop(memory);
    assert_ne!(bed.allocate(MIB, &stream).address(), address);
    hold.release();
}

#[test]
fn e2_a_block_waits_for_every_stream_that_was_recorded() {
    let bed = Bed::new();
    let stream = bed.stream();
    let sides: Vec<_> = (0..3).map(|_| bed.stream()).collect();
    let memory = bed.allocate(12 * MIB, &stream);
    let address = memory.address();
    let mut holds: Vec<_> = sides.iter().map(|side| bed.hold(side)).collect();
    for side in &sides {
        memory.record_stream(side);
        memory.record_stream(side);
    }
    let records = bed.calls_of(Call::Record, || drop(memory));
    assert_eq!(records, 3);
    while let Some(hold) = holds.pop() {
        assert_ne!(bed.allocate(12 * MIB, &stream).address(), address);
        hold.release();
        sides[holds.len()].synchronize().unwrap();
    }
    let both = [0, 1].map(|_| bed.allocate(12 * MIB, &stream));
    assert!(both.iter().any(|memory| memory.address() == address));
    assert_eq!(bed.stats().segment.all.current, 2);
}

#[test]
fn e2_only_work_queued_before_the_free_counts() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let memory = bed.allocate(MIB, &stream);
    let address = memory.address();
    memory.record_stream(&side);
    drop(memory);
    let hold = bed.hold(&side);
    assert_eq!(bed.allocate(MIB, &stream).address(), address);
    hold.release();
}

#[test]
fn e3_what_has_passed_is_found_at_the_next_request() {
    let bed = Bed::new();
    let (stream, side, slow) = (bed.stream(), bed.stream(), bed.stream());
    let stuck = bed.allocate(MIB, &stream);
    let passes = bed.allocate(MIB, &stream);
    let passed_at = passes.address();
    let hold = bed.hold(&slow);
    stuck.record_stream(&slow);
    passes.record_stream(&side);
    drop(stuck);
    drop(passes);
    side.synchronize().unwrap();
    // The other one's wait is no hindrance.
    assert_eq!(bed.allocate(MIB, &stream).address(), passed_at);
    assert_eq!(bed.stats().segment.all.current, 1);
    hold.release();
}

#[test]
fn e3_points_of_one_stream_are_asked_in_their_order() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let blocks: Vec<_> = (0..20).map(|_| bed.allocate(KIB, &stream)).collect();
    let hold = bed.hold(&side);
    for block in blocks {
        block.record_stream(&side);
    }
    // The first has not passed, so none of the later ones is worth a question.
    let polls = bed.calls_of(Call::Poll, || drop(bed.allocate(KIB, &stream)));
    assert_eq!(polls, 1);
    hold.release();
    side.synchronize().unwrap();
    let polls = bed.calls_of(Call::Poll, || drop(bed.allocate(KIB, &stream)));
    assert_eq!(polls, 20);
}

#[test]
fn e9_a_waiting_block_is_active_and_not_allocated() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let memory = bed.allocate(1000, &stream);
    let hold = bed.hold(&side);
    memory.record_stream(&side);
    drop(memory);
    let stats = bed.stats();
    assert_eq!(stats.allocation.all.current, 0);
    assert_eq!(stats.allocated_bytes.all.current, 0);
    assert_eq!(stats.active.all.current, 1);
    assert_eq!(stats.active_bytes.all.current, 1024);
    assert_eq!(stats.requested_bytes.all.current, 1000);
    assert_eq!(stats.active.all.peak, 1);
    bed.assert_sound();
    hold.release();
    side.synchronize().unwrap();
    drop(bed.allocate(MIB, &stream));
    let stats = bed.stats();
    assert_eq!(stats.active.all.current, 0);
    assert_eq!(stats.active_bytes.all.current, 0);
    assert_eq!(stats.requested_bytes.all.current, 0);
    bed.assert_sound();
}

#[test]
fn s16_a_waiting_neighbour_is_not_merged() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let front = bed.allocate(MIB, &stream);
    let back = bed.allocate(MIB, &stream);
    let start = front.address();
    let hold = bed.hold(&side);
    back.record_stream(&side);
    drop((front, back));
    assert_eq!(bed.stats().inactive_split_bytes.all.current, MIB);
    assert_eq!(bed.allocator.largest_free(), MIB);
    hold.release();
    side.synchronize().unwrap();
    drop(bed.allocate(512, &stream));
    assert_eq!(bed.allocator.largest_free(), 2 * MIB);
    assert_eq!(bed.allocate(MIB, &stream).address(), start);
    bed.assert_sound();
}

#[test]
fn e1_a_stream_of_another_device_can_be_recorded() {
    let two = Two::new();
    let (stream, side) = (two.near.stream(), two.far.create_stream().expect("it makes streams"));
    let memory = two.near.allocate(MIB, &stream);
    let address = memory.address();
    let hold = two.far.device().hold(side.handle()).unwrap();
    memory.record_stream(&side);
    drop(memory);
    assert_ne!(two.near.allocate(MIB, &stream).address(), address);
    hold.release();
    side.synchronize().unwrap();
    assert_eq!(two.near.allocate(MIB, &stream).address(), address);
}

#[test]
fn e1_the_default_streams_of_two_devices_are_two_streams() {
    let two = Two::new();
    let stream = two.near.allocator.default_stream().unwrap();
    let side = two.far.default_stream().unwrap();
    let memory = two.near.allocate(MIB, &stream);
    let address = memory.address();
    let hold = two.far.device().hold(side.handle()).unwrap();
    memory.record_stream(&side);
    drop(memory);
    let next = two.near.allocate(MIB, &stream);
    hold.release();
    assert_ne!(next.address(), address, "the other device may still use the memory");
}

/// An allocator for each of two devices of one backend.
struct Two {
    near: Bed,
    far: cachette::Allocator<cachette_hal_host::HostDevice>,
}

impl Two {
    fn new() -> Self {
        let backend =
            cachette_hal_host::HostBackend::new(HostConfig::default().devices(2)).expect("two devices can be made");
        let open = |ordinal| backend.device(cachette::hal::Ordinal(ordinal));
        let device = open(0).expect("there is a first device");
        Self {
            near: Bed { allocator: cachette::Allocator::new(device.clone()), device },
            far: cachette::Allocator::new(open(1).expect("there is a second device")),
        }
    }
}

#[test]
fn e2_one_of_two_uses_that_has_passed_frees_nothing() {
    let bed = Bed::new();
    let (stream, left, right) = (bed.stream(), bed.stream(), bed.stream());
    for (early, late) in [(&left, &right), (&right, &left)] {
        let memory = bed.allocate(MIB, &stream);
        let address = memory.address();
        memory.record_stream(&left);
        memory.record_stream(&right);
        let hold = bed.hold(late);
        bed.fill(&memory, 1, late);
        drop(memory);
        early.synchronize().unwrap();
        let next = bed.allocate(MIB, &stream);
        assert_ne!(next.address(), address, "the other stream still uses it");
        assert_eq!(bed.stats().active.all.current, 2);
        drop(next);
        hold.release();
        late.synchronize().unwrap();
        drop(bed.allocate(512, &stream));
        assert_eq!(bed.stats().active.all.current, 0);
    }
}

#[test]
fn a_handle_that_the_driver_does_not_know_is_refused() {
    let bed = Bed::new();
    let stream = bed.stream();
    let unknown = StreamRef::from_raw(0x1234);
    let address = bed.allocate_raw(MIB, &stream);
    // SAFETY: none of these streams exists, which the host device notices.
    let recorded = unsafe { bed.allocator.record_stream_raw(address, unknown) };
    assert_eq!(recorded, Err(Error::UnknownStream { stream: unknown }));
    // SAFETY: as above.
    let asked = unsafe { bed.allocator.allocate_raw(MIB, unknown) };
    assert_eq!(asked, Err(Error::UnknownStream { stream: unknown }));
    assert!(asked.unwrap_err().to_string().contains("0x1234"));
    // SAFETY: as above.
    assert!(unsafe { bed.allocator.adopt_stream(unknown) }.is_err());
    bed.allocator.free_raw(address).unwrap();
    assert!(bed.allocator.empty_cache().unwrap() > 0);
    bed.assert_sound();
}

#[test]
fn a_stream_destroyed_too_early_costs_nothing_but_a_wait() {
    for text in ["", "expandable_segments:True"] {
        let bed = Bed::of(64 * MIB, text);
        let stream = bed.stream();
        let early = bed.device.create_stream().unwrap();
        let used = bed.allocate_raw(12 * MIB, &stream);
        // SAFETY: 1. the stream is live. 2. is broken below, on purpose.
        unsafe { bed.allocator.record_stream_raw(used, early.borrow()) }.unwrap();
        // SAFETY: as above.
        let own = unsafe { bed.allocator.allocate_raw(24 * MIB, early.borrow()) }.unwrap();
        // SAFETY: 1. the stream was created above.
        unsafe { bed.device.destroy_stream(early) }.unwrap();
        bed.allocator.free_raw(used).unwrap();
        bed.allocator.free_raw(own).unwrap();
        // The memory of the destroyed stream serves where it is needed.
        drop(bed.allocate(48 * MIB, &stream));
        bed.allocator.empty_cache().unwrap();
        assert_eq!(bed.stats().reserved_bytes.all.current, 0, "{text}");
        let report = bed.allocator.allocate(2 * GIB, &stream);
        assert!(matches!(report, Err(Error::OutOfMemory(_))), "{report:?}");
    }
}
