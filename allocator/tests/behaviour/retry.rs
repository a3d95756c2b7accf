//! The retry steps when no free block fits, and their order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock};

use cachette::hal::{Call, ErrorKind};
use cachette::{Allocator, Error};
use cachette_hal::traced::DriverCall;
use cachette_hal_host::HostConfig;

use crate::fixture::threads::{PATIENCE, in_time, is_waiting, start};
use crate::fixture::{ELASTIC, KIB, MIB, TestAllocator};

#[test]
fn m1_m3_free_memory_callbacks_run_before_the_device_is_asked() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let kept = Arc::new(Mutex::new(Some(test.allocate(12 * MIB, &stream))));
    let address = kept.lock().unwrap().as_ref().unwrap().address();
    let cache = Arc::clone(&kept);
    test.allocator.on_pressure(move || cache.lock().unwrap().take().is_some());
    let calls = test.calls_of(Call::Allocate, || {
        assert_eq!(test.allocate(12 * MIB, &stream).address(), address);
    });
    assert_eq!(calls, 0);
}

#[test]
fn m3_every_helper_is_asked_at_every_miss_and_only_then() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let asked = Arc::new(AtomicU64::new(0));
    for frees in [true, false, true] {
        let asked = Arc::clone(&asked);
        test.allocator.on_pressure(move || {
            asked.fetch_add(1, Ordering::Relaxed);
            frees
        });
    }
    drop(test.allocate(12 * MIB, &stream));
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    drop(test.allocate(12 * MIB, &stream));
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    drop(test.allocate(KIB, &stream));
    assert_eq!(asked.load(Ordering::Relaxed), 6);
}

#[test]
fn m4_beyond_the_limit_the_device_is_not_asked() {
    let (test, [stream]) = TestAllocator::with("memory_limit:30M").with_streams();
    let first = test.allocate(20 * MIB, &stream);
    let calls = test.calls_of(Call::Allocate, || {
        let error = test.allocator.allocate(12 * MIB, &stream).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    });
    assert_eq!(calls, 0);
    let second = test.allocate(10 * MIB, &stream);
    assert_eq!(test.stats().reserved_bytes.all.current, 30 * MIB);
    drop((first, second));
}

#[test]
fn m4_the_segment_counts_against_the_limit_and_not_the_request() {
    let (test, [stream]) = TestAllocator::with("memory_limit:21M").with_streams();
    let large = test.allocate(2 * MIB, &stream);
    // The rest of the 20 MiB is free, but 512 bytes would take a segment of 2 MiB more.
    assert!(test.allocator.allocate(512, &stream).is_err());
    let more = test.allocate(9 * MIB, &stream);
    drop((large, more));
}

#[test]
fn m6_only_exhaustion_of_the_device_is_retried() {
    for kind in [ErrorKind::Other, ErrorKind::Fault, ErrorKind::DeviceLost, ErrorKind::Refused] {
        let (test, [stream, side]) = TestAllocator::new().with_streams();
        drop(test.allocate(12 * MIB, &side));
        test.device.fail_next(Call::Allocate, 1, kind);
        let frees = test.calls_of(Call::Free, || {
            let error = test.allocator.allocate(40 * MIB, &stream).unwrap_err();
            assert!(matches!(error, Error::Device(device) if device.kind() == kind), "{error}");
        });
        assert_eq!((frees, test.device.calls(Call::Allocate)), (0, 2));
        let stats = test.stats();
        assert_eq!((stats.num_ooms, stats.num_alloc_retries), (0, 0));
        assert_eq!(test.allocate(40 * MIB, &stream).bytes(), 40 * MIB);
        test.assert_sound();
    }
}

#[test]
fn m6_m10_after_exhaustion_the_cache_is_released_for_a_retry() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    drop(test.allocate(12 * MIB, &side));
    drop(test.allocate(512, &side));
    drop(test.allocate(12 * MIB, &stream));
    test.device.fail_next(Call::Allocate, 1, ErrorKind::OutOfMemory);
    let memory = test.allocate(40 * MIB, &stream);
    let stats = test.stats();
    assert_eq!(stats.segment.all.current, 1);
    assert_eq!(stats.num_alloc_retries, 1);
    assert_eq!((stats.num_device_free, stats.num_ooms), (3, 0));
    drop(memory);
    test.assert_sound();
}

#[test]
fn m13_only_segments_that_are_wholly_free_are_given_back() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let small = test.allocate(512, &stream);
    let large = test.allocate(2 * MIB, &stream);
    drop(test.allocate(30 * MIB, &stream));
    assert_eq!(test.allocator.empty_cache(), Ok(30 * MIB));
    assert_eq!(test.device.physical_bytes(), 22 * MIB);
    drop(small);
    assert_eq!(test.allocator.empty_cache(), Ok(2 * MIB));
    drop(large);
    assert_eq!(test.allocator.empty_cache(), Ok(20 * MIB));
    assert_eq!(test.allocator.empty_cache(), Ok(0));
    assert_eq!(test.device.physical_bytes(), 0);
    test.assert_sound();
}

#[test]
fn m10_m12_emptying_the_cache_waits_for_uses_of_other_streams() {
    let test = TestAllocator::new();
    let (_stream, side, memory, hold) = test.used_memory(12 * MIB);
    memory.record_stream(&side);
    drop(memory);
    let allocator = test.allocator.clone();
    let emptied = start(move || allocator.empty_cache());
    let waits = is_waiting(&emptied);
    hold.release();
    assert!(waits, "the block was not waited for");
    assert_eq!(emptied.recv().unwrap(), Ok(12 * MIB));
    assert_eq!(test.stats().num_sync_all_streams, 1);
}

#[test]
fn m7_a_hit_does_not_wait_for_a_thread_that_asks_the_device() {
    let (slow, gate) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
    let observer = {
        let (slow, gate) = (Arc::clone(&slow), Arc::clone(&gate));
        move |call: &DriverCall| {
            if call.call == Call::Allocate && slow.load(Ordering::Acquire) {
                gate.wait();
                gate.wait();
            }
        }
    };
    let (test, [stream]) = TestAllocator::traced(HostConfig::default(), "", observer).with_streams();
    drop(test.allocate(KIB, &stream));
    slow.store(true, Ordering::Release);
    let (allocator, growing, on) = (test.allocator.clone(), test.allocator.clone(), stream.clone());
    let grown = start(move || growing.allocate(12 * MIB, &on).map(drop));
    // The driver has been called, and does not answer before the second meeting.
    gate.wait();
    let hit = in_time(move || {
        let memory = allocator.allocate(KIB, &stream);
        let (bytes, stats) = (memory.map(|memory| memory.bytes()), allocator.stats());
        (bytes, stats.allocation.all.allocated)
    });
    gate.wait();
    assert_eq!(hit, Some((Ok(KIB), 2)));
    assert_eq!(grown.recv().unwrap(), Ok(()));
}

#[test]
fn m10_what_another_thread_gives_back_meanwhile_serves_too() {
    let emptied = Arc::new(OnceLock::<Allocator<_>>::new());
    let other = Arc::clone(&emptied);
    // The device has just said that it is full: at that moment another empties the cache.
    let observer = move |call: &DriverCall| {
        if call.call == Call::Allocate && call.outcome.is_err() {
            let allocator = other.get().expect("it was set before the device was full");
            assert_eq!(allocator.empty_cache(), Ok(40 * MIB));
        }
    };
    let test = TestAllocator::traced(HostConfig::default().capacity(64 * MIB), "", observer);
    assert!(emptied.set(test.allocator.clone()).is_ok());
    let [one, two] = test.streams();
    drop(test.allocate(40 * MIB, &one));
    let memory = test.allocator.allocate(40 * MIB, &two);
    assert!(memory.is_ok(), "{memory:?}");
    assert_eq!(test.stats().num_alloc_retries, 1);
}

#[test]
fn m24_the_largest_request_that_could_be_served_is_known() {
    let (test, [stream]) = TestAllocator::of(64 * MIB, "").with_streams();
    assert_eq!(test.allocator.largest_free(), 0);
    assert_eq!(test.allocator.largest_available(), Ok(64 * MIB));
    drop(test.allocate(40 * MIB, &stream));
    assert_eq!(test.allocator.largest_free(), 40 * MIB);
    assert_eq!(test.allocator.largest_available(), Ok(40 * MIB));
    let part = test.allocate(30 * MIB, &stream);
    assert_eq!(test.allocator.largest_free(), 10 * MIB);
    assert_eq!(test.allocator.largest_available(), Ok(24 * MIB));
    drop(part);
}

#[test]
fn m24_only_the_question_for_the_device_can_fail() {
    let test = TestAllocator::new();
    test.device.fail_next(Call::MemoryInfo, 1, ErrorKind::Other);
    assert!(test.allocator.largest_available().is_err());
    assert_eq!(test.allocator.largest_free(), 0);
}

#[test]
fn m9_a_segment_that_cannot_be_freed_does_not_keep_those_of_other_streams() {
    for text in ["", "max_split_size_mb:20"] {
        let (test, [stream, side]) = TestAllocator::of(100 * MIB, text).with_streams();
        drop([&stream, &side].map(|stream| test.allocate(40 * MIB, stream)));
        test.device.fail_next(Call::Free, 1, ErrorKind::Other);
        let memory = test.allocator.allocate(60 * MIB, &stream);
        assert!(memory.is_ok(), "{text}: {memory:?}");
    }
}

#[test]
fn m1_a_block_that_many_streams_used_serves_before_free_memory_callbacks_run() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let sides = test.streams::<20>();
    let memory = test.allocate(12 * MIB, &stream);
    let address = memory.address();
    for side in &sides {
        memory.record_stream(side);
    }
    drop(memory);
    for side in &sides {
        side.synchronize().unwrap();
    }
    test.allocator.on_pressure(|| panic!("nothing is short of memory"));
    assert_eq!(test.allocate(12 * MIB, &stream).address(), address);
}

#[test]
fn m1_a_request_is_served_by_the_segment_that_another_has_just_got() {
    let (test, hook) = TestAllocator::hooked(HostConfig::default(), "");
    let stream = test.stream();
    let (allocator, same) = (test.allocator.clone(), stream.clone());
    let second = hook.start(Call::Allocate, None, move || allocator.allocate(2 * MIB, &same));
    let first = test.allocate(2 * MIB, &stream);
    let second = second.result().unwrap();
    assert_eq!(test.stats().num_device_alloc, 1);
    drop((first, second));
}

#[test]
fn d2_the_driver_waits_for_the_only_use_that_frees_memory() {
    let test = TestAllocator::of(12 * MIB, "");
    let (stream, side, memory, hold) = test.used_memory(12 * MIB);
    memory.record_stream(&side);
    drop(memory);
    let (allocator, before) = (test.allocator.clone(), test.device.calls(Call::Wait));
    let request = start(move || allocator.allocate(12 * MIB, &stream).map(drop));
    assert!(is_waiting(&request));
    hold.release();
    request.recv().expect("it answers").expect("the use has ended");
    assert_eq!(test.device.calls(Call::Wait) - before, 1);
}

#[test]
fn d2_a_segment_that_comes_free_makes_room_for_a_larger_one_at_once() {
    let (test, [stream, first, second]) = TestAllocator::of(44 * MIB, "").with_streams();
    let sides = [&first, &second];
    let memory = sides.map(|side| (test.allocate(20 * MIB, &stream), side));
    let [early, late] = sides.map(|side| test.hold(side));
    for (memory, side) in memory {
        memory.record_stream(side);
    }
    let allocator = test.allocator.clone();
    let asking = start(move || allocator.allocate(24 * MIB, &stream).map(drop));
    assert!(is_waiting(&asking));
    early.release();
    asking.recv_timeout(PATIENCE).expect("the later use is not waited for").unwrap();
    late.release();
}

#[test]
fn d2_one_use_after_the_other_is_waited_for_until_the_chunks_suffice() {
    let (test, [stream, side]) = TestAllocator::of(8 * MIB, ELASTIC).with_streams();
    let [first, one, second, two] = [(); 4].map(|()| test.allocate(2 * MIB, &stream));
    let holds = [first, second].map(|memory| {
        let hold = test.hold(&side);
        memory.record_stream(&side);
        hold
    });
    let allocator = test.allocator.clone();
    let request = start(move || allocator.allocate(4 * MIB, &stream).map(drop));
    for hold in holds {
        assert!(is_waiting(&request), "there are not two chunks");
        hold.release();
    }
    request.recv().expect("it answers").expect("there are two chunks");
    drop((one, two));
}

#[test]
fn m10_memory_that_the_driver_kept_once_is_returned_for_a_request() {
    let (test, [stream]) = TestAllocator::of(16 * MIB, ELASTIC).with_streams();
    drop(test.allocate(12 * MIB, &stream));
    stream.synchronize().unwrap();
    let pool = test.allocator.create_pool();
    test.device.fail_next(Call::Unmap, 1, ErrorKind::Other);
    let memory = pool.allocate(12 * MIB, &stream).expect("the unmap is tried again");
    drop(memory);
}
