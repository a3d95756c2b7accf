//! What is done when no free block fits, and in which order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock};

use cachette::hal::{Call, ErrorKind};
use cachette::{Allocator, Error};
use cachette_hal_host::HostConfig;
use cachette_hal_testing::Traced;
use cachette_hal_testing::traced::DriverCall;

use crate::bed::{Bed, KIB, MIB, config, device, in_time};

#[test]
fn m1_a_hit_asks_neither_helpers_nor_the_device() {
    let bed = Bed::new();
    let stream = bed.stream();
    drop(bed.allocate(MIB, &stream));
    bed.allocator.on_pressure(|| panic!("nothing is short of memory"));
    assert_eq!(bed.calls_during(|| drop(bed.allocate(MIB, &stream))), 0);
}

#[test]
fn m1_m3_helpers_are_asked_before_the_device() {
    let bed = Bed::new();
    let stream = bed.stream();
    let kept = Arc::new(Mutex::new(Some(bed.allocate(12 * MIB, &stream))));
    let address = kept.lock().unwrap().as_ref().unwrap().address();
    let cache = Arc::clone(&kept);
    bed.allocator.on_pressure(move || cache.lock().unwrap().take().is_some());
    let calls = bed.calls_of(Call::Allocate, || {
        assert_eq!(bed.allocate(12 * MIB, &stream).address(), address);
    });
    assert_eq!(calls, 0);
}

#[test]
fn m3_every_helper_is_asked_at_every_miss_and_only_then() {
    let bed = Bed::new();
    let stream = bed.stream();
    let asked = Arc::new(AtomicU64::new(0));
    for frees in [true, false, true] {
        let asked = Arc::clone(&asked);
        bed.allocator.on_pressure(move || {
            asked.fetch_add(1, Ordering::Relaxed);
            frees
        });
    }
    drop(bed.allocate(12 * MIB, &stream));
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    drop(bed.allocate(12 * MIB, &stream));
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    drop(bed.allocate(KIB, &stream));
    assert_eq!(asked.load(Ordering::Relaxed), 6);
}

#[test]
fn m4_beyond_the_limit_the_device_is_not_asked() {
    let bed = Bed::with("memory_limit:30M");
    let stream = bed.stream();
    let first = bed.allocate(20 * MIB, &stream);
    let calls = bed.calls_of(Call::Allocate, || {
        let error = bed.allocator.allocate(12 * MIB, &stream).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    });
    assert_eq!(calls, 0);
    let second = bed.allocate(10 * MIB, &stream);
    assert_eq!(bed.stats().reserved_bytes.all.current, 30 * MIB);
    drop((first, second));
}

#[test]
fn m4_the_segment_counts_against_the_limit_and_not_the_request() {
    let bed = Bed::with("memory_limit:21M");
    let stream = bed.stream();
    let large = bed.allocate(2 * MIB, &stream);
    // The rest of the 20 MiB is free, but 512 bytes would take a segment of 2 MiB more.
    assert!(bed.allocator.allocate(512, &stream).is_err());
    let more = bed.allocate(9 * MIB, &stream);
    drop((large, more));
}

#[test]
fn m6_exhaustion_of_the_device_is_climbed_and_anything_else_is_reported_at_once() {
    for kind in [ErrorKind::Other, ErrorKind::Fault, ErrorKind::DeviceLost, ErrorKind::Refused] {
        let bed = Bed::new();
        let (stream, side) = (bed.stream(), bed.stream());
        drop(bed.allocate(12 * MIB, &side));
        bed.device.fail_next(Call::Allocate, 1, kind);
        let frees = bed.calls_of(Call::Free, || {
            let error = bed.allocator.allocate(40 * MIB, &stream).unwrap_err();
            assert!(matches!(error, Error::Device(device) if device.kind() == kind), "{error}");
        });
        assert_eq!((frees, bed.device.calls(Call::Allocate)), (0, 2));
        let stats = bed.stats();
        assert_eq!((stats.num_ooms, stats.num_alloc_retries), (0, 0));
        assert_eq!(bed.allocate(40 * MIB, &stream).bytes(), 40 * MIB);
        bed.assert_sound();
    }
}

#[test]
fn m6_m10_after_exhaustion_the_cache_is_given_back_and_the_device_asked_again() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    drop(bed.allocate(12 * MIB, &side));
    drop(bed.allocate(512, &side));
    drop(bed.allocate(12 * MIB, &stream));
    bed.device.fail_next(Call::Allocate, 1, ErrorKind::OutOfMemory);
    let memory = bed.allocate(40 * MIB, &stream);
    let stats = bed.stats();
    assert_eq!(stats.segment.all.current, 1);
    assert_eq!(stats.num_alloc_retries, 1);
    assert_eq!((stats.num_device_free, stats.num_ooms), (3, 0));
    drop(memory);
    bed.assert_sound();
}

#[test]
fn m13_only_segments_that_are_wholly_free_are_given_back() {
    let bed = Bed::new();
    let stream = bed.stream();
    let small = bed.allocate(512, &stream);
    let large = bed.allocate(2 * MIB, &stream);
    drop(bed.allocate(30 * MIB, &stream));
    assert_eq!(bed.allocator.empty_cache(), Ok(30 * MIB));
    assert_eq!(bed.device.physical_bytes(), 22 * MIB);
    drop(small);
    assert_eq!(bed.allocator.empty_cache(), Ok(2 * MIB));
    drop(large);
    assert_eq!(bed.allocator.empty_cache(), Ok(20 * MIB));
    assert_eq!(bed.allocator.empty_cache(), Ok(0));
    assert_eq!(bed.device.physical_bytes(), 0);
    bed.assert_sound();
}

#[test]
fn m10_emptying_the_cache_reaches_every_stream() {
    let bed = Bed::new();
    let streams: Vec<_> = (0..5).map(|_| bed.stream()).collect();
    for stream in &streams {
        drop((bed.allocate(512, stream), bed.allocate(2 * MIB, stream)));
    }
    assert_eq!(bed.allocator.empty_cache(), Ok(110 * MIB));
    assert_eq!(bed.stats().segment.all.current, 0);
}

#[test]
fn m10_m12_emptying_the_cache_waits_for_what_other_streams_still_use() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let memory = bed.allocate(12 * MIB, &stream);
    let hold = bed.hold(&side);
    bed.fill(&memory, 1, &side);
    memory.record_stream(&side);
    drop(memory);
    let allocator = bed.allocator.clone();
    let emptied = crate::bed::start(move || allocator.empty_cache());
    let waits = crate::bed::is_waiting(&emptied);
    hold.release();
    assert!(waits, "the block was not waited for");
    assert_eq!(emptied.recv().unwrap(), Ok(12 * MIB));
    assert_eq!(bed.stats().num_sync_all_streams, 1);
}

#[test]
fn m7_a_hit_does_not_wait_for_another_thread_that_asks_the_device() {
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
    let traced = Traced::new(device(HostConfig::default()), observer);
    let allocator = Allocator::with_config(traced, &config(""));
    let stream = allocator.create_stream().unwrap();
    drop(allocator.allocate(KIB, &stream).unwrap());
    slow.store(true, Ordering::Release);
    let (growing, on) = (allocator.clone(), stream.clone());
    let grown = crate::bed::start(move || growing.allocate(12 * MIB, &on).map(drop));
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
    let traced = Traced::new(device(HostConfig::default().capacity(64 * MIB)), observer);
    let allocator = Allocator::with_config(traced, &config(""));
    assert!(emptied.set(allocator.clone()).is_ok());
    let stream = || allocator.create_stream().unwrap();
    let (one, two) = (stream(), stream());
    drop(allocator.allocate(40 * MIB, &one).unwrap());
    let memory = allocator.allocate(40 * MIB, &two);
    assert!(memory.is_ok(), "{memory:?}");
    assert_eq!(allocator.stats().num_alloc_retries, 1);
}

#[test]
fn m24_the_largest_request_that_could_be_served_is_known() {
    let bed = Bed::of(64 * MIB, "");
    let stream = bed.stream();
    assert_eq!(bed.allocator.largest_free(), 0);
    assert_eq!(bed.allocator.largest_available(), Ok(64 * MIB));
    drop(bed.allocate(40 * MIB, &stream));
    assert_eq!(bed.allocator.largest_free(), 40 * MIB);
    assert_eq!(bed.allocator.largest_available(), Ok(40 * MIB));
    let part = bed.allocate(30 * MIB, &stream);
    assert_eq!(bed.allocator.largest_free(), 10 * MIB);
    assert_eq!(bed.allocator.largest_available(), Ok(24 * MIB));
    drop(part);
}

#[test]
fn m24_only_the_question_for_the_device_can_fail() {
    let bed = Bed::new();
    bed.device.fail_next(Call::MemoryInfo, 1, ErrorKind::Other);
    assert!(bed.allocator.largest_available().is_err());
    assert_eq!(bed.allocator.largest_free(), 0);
}
