//! Memory belongs to a stream; recorded uses of other streams delay its reuse.

use std::collections::HashSet;

use cachette::Error;
use cachette::hal::{Call, Device, StreamRef};
use cachette_hal_host::HostConfig;

use crate::fixture::memory::Interface;
use crate::fixture::threads::{PATIENCE, is_waiting, start};
use crate::fixture::{KIB, MIB, Stream, TestAllocator, let_pass};

#[test]
fn s10_s18_a_freed_block_serves_its_stream_without_a_call() {
    for interface in Interface::BOTH {
        let (test, [stream]) = TestAllocator::new().with_streams();
        for bytes in [1, KIB, MIB, 3 * MIB, 12 * MIB] {
            let memory = test.allocate_by(interface, bytes, &stream);
            let address = memory.address();
            assert_eq!(test.stats().allocation.all.current, 1);
            drop(memory);
            assert_eq!(test.stats().allocation.all.current, 0);
            let calls = test.calls_during(|| {
                for _ in 0..100 {
                    assert_eq!(test.allocate_by(interface, bytes, &stream).address(), address);
                }
            });
            assert_eq!(calls, 0, "{interface:?}, {bytes}");
        }
        test.assert_sound();
    }
}

#[test]
fn s10_every_one_of_many_streams_keeps_its_own() {
    let test = TestAllocator::phantom(64 << 30, "");
    let streams: Vec<_> = (0..700).map(|_| test.stream()).collect();
    let homes: Vec<_> = streams.iter().map(|stream| test.allocate_raw(KIB, stream)).collect();
    for address in &homes {
        test.allocator.free_raw(*address).unwrap();
    }
    for (stream, address) in streams.iter().zip(&homes).rev() {
        assert_eq!(test.allocate(KIB, stream).address(), *address);
        // SAFETY: 1. the stream is this allocator's own. 2. it lives as long as it.
        let adopted = unsafe { test.allocator.adopt_stream(stream.handle()) }.unwrap();
        assert_eq!(test.allocate(KIB, &adopted).address(), *address);
    }
    assert_eq!(test.stats().segment.all.current, 700);
    test.assert_sound();
}

#[test]
fn e1_the_streams_own_use_needs_no_record() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let memory = test.allocate(KIB, &stream);
    let address = memory.address();
    let hold = test.hold(&stream);
    let calls = test.calls_during(|| {
        memory.record_stream(&stream);
        drop(memory);
        assert_eq!(test.allocate(KIB, &stream).address(), address);
    });
    assert_eq!(calls, 0);
    hold.release();
}

#[test]
fn e1_e2_a_block_waits_for_the_stream_that_was_recorded() {
    for interface in Interface::BOTH {
        let (test, [stream, side]) = TestAllocator::new().with_streams();
        let memory = test.allocate_by(interface, MIB, &stream);
        let address = memory.address();
        let hold = test.hold(&side);
        test.fill(&memory, 7, &side);
        memory.record_stream(&side);
        drop(memory);
        let other = test.allocate(MIB, &stream);
        assert_ne!(other.address(), address);
        test.fill(&other, 8, &stream);
        let_pass(hold, &side);
        let again = test.allocate(MIB, &stream);
        assert_eq!(again.address(), address);
        assert_eq!(test.content(&again, &stream), Some(7));
        assert_eq!(test.content(&other, &stream), Some(8));
        drop((again, other));
        test.assert_sound();
    }
}

#[test]
fn e1_a_recorded_use_survives_the_loss_of_every_other_handle() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let memory = test.allocate(MIB, &stream);
    let address = memory.address();
    let hold = test.hold(&side);
    memory.record_stream(&side);
    drop(side);
    drop(memory);
    assert_ne!(test.allocate(MIB, &stream).address(), address);
    hold.release();
}

#[test]
fn e2_a_block_waits_for_every_stream_that_was_recorded() {
    for reversed in [false, true] {
        let (test, [stream]) = TestAllocator::new().with_streams();
        let mut sides = test.streams::<3>();
        let memory = test.allocate(12 * MIB, &stream);
        let address = memory.address();
        for side in sides.iter().flat_map(|side| [side, side]) {
            memory.record_stream(side);
        }
        if reversed {
            sides.reverse();
        }
        let mut holds: Vec<_> = sides.iter().map(|side| test.hold(side)).collect();
        let records = test.calls_of(Call::Record, || drop(memory));
        assert_eq!(records, 3);
        while let Some(hold) = holds.pop() {
            assert_eq!(test.stats().active.all.current, 1);
            assert_ne!(test.allocate(12 * MIB, &stream).address(), address);
            hold.release();
            sides[holds.len()].synchronize().unwrap();
        }
        let both = [0, 1].map(|_| test.allocate(12 * MIB, &stream));
        assert!(both.iter().any(|memory| memory.address() == address));
        assert_eq!(test.stats().segment.all.current, 2);
    }
}

#[test]
fn e2_only_work_queued_before_the_free_counts() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let memory = test.allocate(MIB, &stream);
    let address = memory.address();
    memory.record_stream(&side);
    drop(memory);
    let hold = test.hold(&side);
    assert_eq!(test.allocate(MIB, &stream).address(), address);
    hold.release();
}

#[test]
fn e3_what_has_passed_is_found_at_the_next_request() {
    let (test, [stream, side, slow]) = TestAllocator::new().with_streams();
    let stuck = test.allocate(MIB, &stream);
    let passes = test.allocate(MIB, &stream);
    let passed_at = passes.address();
    let hold = test.hold(&slow);
    stuck.record_stream(&slow);
    passes.record_stream(&side);
    drop(stuck);
    drop(passes);
    side.synchronize().unwrap();
    // The other one's wait is no hindrance.
    assert_eq!(test.allocate(MIB, &stream).address(), passed_at);
    assert_eq!(test.stats().segment.all.current, 1);
    hold.release();
}

#[test]
fn e3_points_of_one_stream_are_asked_in_their_order() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let blocks: Vec<_> = (0..20).map(|_| test.allocate(KIB, &stream)).collect();
    let hold = test.hold(&side);
    for block in blocks {
        block.record_stream(&side);
    }
    // The last has not passed, so the first is asked next. After the first has passed, the last covers the others.
    let ask = |bytes| {
        let polls = test.calls_of(Call::Poll, || drop(test.allocate(bytes, &stream)));
        (polls, test.stats().active.all.current)
    };
    assert_eq!(ask(KIB), (1, 20));
    let_pass(hold, &side);
    assert_eq!([ask(2 * KIB), ask(KIB)], [(1, 19), (1, 0)]);
}

#[test]
fn e9_a_waiting_block_is_active_and_not_allocated() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let hold = test.free_in_use(test.allocate(1000, &stream), &side);
    let stats = test.stats();
    assert_eq!(stats.allocation.all.current, 0);
    assert_eq!(stats.allocated_bytes.all.current, 0);
    assert_eq!(stats.active.all.current, 1);
    assert_eq!(stats.active_bytes.all.current, 1024);
    assert_eq!(stats.requested_bytes.all.current, 1000);
    assert_eq!(stats.active.all.peak, 1);
    test.assert_sound();
    let_pass(hold, &side);
    drop(test.allocate(MIB, &stream));
    let stats = test.stats();
    assert_eq!(stats.active.all.current, 0);
    assert_eq!(stats.active_bytes.all.current, 0);
    assert_eq!(stats.requested_bytes.all.current, 0);
    test.assert_sound();
}

#[test]
fn s16_a_waiting_neighbour_is_not_merged() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let front = test.allocate(MIB, &stream);
    let back = test.allocate(MIB, &stream);
    let start = front.address();
    let hold = test.hold(&side);
    back.record_stream(&side);
    drop((front, back));
    assert_eq!(test.stats().inactive_split_bytes.all.current, MIB);
    assert_eq!(test.allocator.largest_free(), MIB);
    let_pass(hold, &side);
    drop(test.allocate(512, &stream));
    assert_eq!(test.allocator.largest_free(), 2 * MIB);
    assert_eq!(test.allocate(MIB, &stream).address(), start);
    test.assert_sound();
}

#[test]
fn e1_a_stream_of_another_device_can_be_recorded() {
    // The default streams of two devices are two streams, although their handles are equal.
    let default = |test: &TestAllocator| test.allocator.default_stream().unwrap();
    for stream_of in [TestAllocator::stream, default] {
        let [near, far] = TestAllocator::two_devices();
        let (stream, side) = (stream_of(&near), stream_of(&far));
        let memory = near.allocate(MIB, &stream);
        let address = memory.address();
        let hold = far.free_in_use(memory, &side);
        let next = near.allocate(MIB, &stream);
        assert_ne!(next.address(), address, "the other device may still use the memory");
        drop(next);
        let_pass(hold, &side);
        let both = [near.allocate(MIB, &stream), near.allocate(MIB, &stream)];
        assert!(both.iter().any(|memory| memory.address() == address));
    }
}

#[test]
fn a_handle_that_the_driver_does_not_know_is_refused() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let unknown = StreamRef::from_raw(0x1234);
    let address = test.allocate_raw(MIB, &stream);
    // SAFETY: none of these streams exists, which the host device notices.
    let recorded = unsafe { test.allocator.record_stream_raw(address, unknown) };
    assert_eq!(recorded, Err(Error::UnknownStream { stream: unknown }));
    // SAFETY: as above.
    let asked = unsafe { test.allocator.allocate_raw(MIB, unknown) };
    assert_eq!(asked, Err(Error::UnknownStream { stream: unknown }));
    assert!(asked.unwrap_err().to_string().contains("0x1234"));
    // SAFETY: as above.
    assert!(unsafe { test.allocator.adopt_stream(unknown) }.is_err());
    test.allocator.free_raw(address).unwrap();
    assert!(test.allocator.empty_cache().unwrap() > 0);
    test.assert_sound();
}

#[test]
fn e10_a_dropped_stream_without_work_and_memory_serves_again() {
    for text in ["", "expandable_segments:True"] {
        let test = TestAllocator::on(HostConfig::default().phantom(true).stepped(1), text);
        for _ in 0..100 {
            let stream = test.stream();
            drop(test.allocate(512, &stream));
        }
        assert_eq!(test.device.live().streams, 1, "{text}");
        let streams: [Stream; 3] = test.streams();
        assert_eq!(test.device.live().streams, 3, "{text}");
        let handles: HashSet<_> = streams.iter().map(Stream::handle).collect();
        assert_eq!(handles.len(), 3, "streams that are in use are not shared");
        test.assert_returns_everything_after(streams);
    }
}

#[test]
fn e10_a_dropped_stream_with_work_or_memory_serves_no_other() {
    let test = TestAllocator::new();
    let (busy, used, pooled, clone) = (test.stream(), test.stream(), test.stream(), test.stream());
    let before = [&busy, &used, &pooled, &clone].map(Stream::handle);
    let hold = test.hold(&busy);
    let memory = test.allocate(512, &used);
    let pool = test.allocator.create_pool();
    let in_pool = pool.allocate(512, &pooled).unwrap();
    let kept = clone.clone();
    drop((busy, used, pooled, clone));
    let others: Vec<_> = (0..8).map(|_| test.stream()).collect();
    assert!(others.iter().all(|stream| !before.contains(&stream.handle())));
    hold.release();
    test.device.synchronize_device().unwrap();
    drop((memory, in_pool, kept));
    let after: Vec<_> = (0..4).map(|_| test.stream()).collect();
    assert!(after.iter().all(|stream| before.contains(&stream.handle())), "all of them serve again");
    assert_eq!(after.iter().map(Stream::handle).collect::<HashSet<_>>().len(), 4);
    drop(others);
}

#[test]
fn work_of_a_stream_destroyed_too_early_is_waited_for() {
    let (test, [stream, busy]) = TestAllocator::new().with_streams();
    let early = test.device.create_stream().unwrap();
    // SAFETY: 1. the stream lives. 2. this test breaks that promise, and uses no memory of the stream.
    let adopted = unsafe { test.allocator.adopt_stream(early.borrow()) }.unwrap();
    let memory = test.allocate(4 * MIB, &stream);
    memory.record_stream(&adopted);
    let hold = test.hold(&busy);
    // SAFETY: 1. the stream was created above.
    unsafe { test.device.destroy_stream(early) }.unwrap();
    let freeing = start(move || drop(memory));
    assert!(is_waiting(&freeing), "the device is not waited for");
    hold.release();
    freeing.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn a_stream_waits_for_another_on_the_device() {
    let (test, [stream, other]) = TestAllocator::new().with_streams();
    let hold = test.hold(&other);
    stream.wait(&other).unwrap();
    let event = stream.record_event().unwrap();
    assert_eq!(event.is_done(), Ok(false));
    let waiting = start(move || event.synchronize());
    assert!(is_waiting(&waiting));
    hold.release();
    waiting.recv_timeout(PATIENCE).unwrap().unwrap();
}

#[test]
fn an_event_covers_the_work_before_it_only() {
    let (test, [stream, other]) = TestAllocator::new().with_streams();
    let event = other.record_event().unwrap();
    let hold = test.hold(&other);
    stream.wait_event(&event).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(event.is_done(), Ok(true));
    event.synchronize().unwrap();
    let_pass(hold, &other);
    test.assert_returns_everything_after((event, stream, other));
}

#[test]
fn streams_of_two_allocators_do_not_wait_for_each_other() {
    let test = TestAllocator::new();
    let other = test.beside("");
    let (stream, foreign) = (test.stream(), other.stream());
    let event = foreign.record_event().unwrap();
    let calls = test.device.total_calls();
    assert_eq!(stream.wait(&foreign), Err(Error::ForeignStream));
    assert_eq!(stream.wait_event(&event), Err(Error::ForeignStream));
    assert_eq!(test.device.total_calls(), calls);
}
