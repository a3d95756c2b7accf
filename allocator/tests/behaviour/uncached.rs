//! Without the cache, every request goes to the device.

use std::sync::Barrier;
use std::thread::{self, ScopedJoinHandle};

use cachette::hal::{Call, CaptureMode, ErrorKind};
use cachette::{Allocation, Error, PointerProblem, Stream};
use cachette_hal_host::HostConfig;

use crate::fixture::memory::Interface;
use crate::fixture::threads::{is_waiting, start};
use crate::fixture::{KIB, MIB, TestAllocator, config, launch};

const OFF: &str = "caching:False";

#[test]
fn m23_every_request_goes_to_the_device_and_nothing_is_counted() {
    let (test, [stream]) = TestAllocator::with(OFF).with_streams();
    for bytes in [1, 1000, MIB, 3 * MIB] {
        let memory = test.allocate(bytes, &stream);
        assert_eq!((memory.requested(), memory.stream()), (bytes, stream.handle()));
        assert_eq!(test.device.live().allocations, 1);
        drop(memory);
        assert_eq!(test.device.live().allocations, 0);
    }
    assert_eq!(test.device.calls(Call::Allocate), 4);
    assert_eq!(test.stats().allocation.all.allocated, 0);
    assert_eq!(test.stats().reserved_bytes.all.peak, 0);
    assert_eq!(test.stats().num_device_alloc, 0);
}

#[test]
fn m23_memory_is_freed_only_when_no_other_device_uses_it() {
    let record: fn(Allocation, &Stream) = |memory, side| memory.record_stream(side);
    let release: fn(Allocation, &Stream) = |memory, side| memory.release_after(&[side]).unwrap();
    for (fails, free) in [(false, record), (true, record), (false, release)] {
        let [here, there] = TestAllocator::two_devices_on(HostConfig::default(), OFF);
        let (stream, side) = (here.stream(), there.stream());
        here.allocator.allow_peer(&there.device).unwrap();
        let memory = here.allocate(MIB, &stream);
        let hold = there.hold(&side);
        there.fill(&memory, 1, &side);
        if fails {
            there.device.fail_next(Call::SynchronizeDevice, 1, ErrorKind::Other);
        }
        let (user, allocator) = (side.clone(), here.allocator.clone());
        let freed = start(move || {
            free(memory, &user);
            allocator.empty_cache()
        });
        assert!(is_waiting(&freed));
        hold.release();
        freed.recv().unwrap().unwrap();
        assert_eq!(side.synchronize(), Ok(()), "the other device used memory that was freed");
        assert_eq!(here.device.physical_bytes(), 0);
    }
}

#[test]
fn m23_memory_is_freed_only_when_no_stream_uses_it() {
    for releases in [false, true] {
        let test = TestAllocator::with(OFF);
        let (_stream, side, memory, hold) = test.used_memory(MIB);
        let user = side.clone();
        let freed = start(move || {
            if releases {
                memory.release_after(&[&user]).unwrap();
            } else {
                memory.record_stream(&user);
                drop(memory);
            }
        });
        assert!(is_waiting(&freed), "releases: {releases}");
        hold.release();
        freed.recv().unwrap();
        // A fill of memory that is gone would have been a fault.
        assert!(test.device.live().allocations == 0 && side.synchronize().is_ok());
    }
}

#[test]
fn m23_raw_memory_works_without_the_cache() {
    let (test, [stream, side]) = TestAllocator::with(OFF).with_streams();
    let raw = test.allocate_raw(1000, &stream);
    let given_up = test.allocate(1000, &stream).into_raw();
    assert_eq!(test.device.live().allocations, 2);
    for address in [raw, given_up] {
        // SAFETY: 1. 2. the stream is this allocator's own.
        assert_eq!(unsafe { test.allocator.record_stream_raw(address, side.handle()) }, Ok(()));
        let foreign = Error::InvalidPointer { address, why: PointerProblem::Foreign };
        assert_ne!(test.allocator.base_allocation(address), Err(foreign));
        test.allocator.free_raw(address).unwrap();
        let error = test.allocator.free_raw(address).unwrap_err();
        assert!(matches!(error, Error::InvalidPointer { .. }), "{error}");
    }
    assert_eq!(test.device.live().allocations, 0);
}

#[test]
fn m23_the_cache_can_be_switched_while_memory_is_out() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let cached = test.allocate(KIB, &stream);
    let cached_raw = test.allocate_raw(KIB, &stream);
    let before = test.stats();
    test.allocator.set_config(&config(OFF));
    let past = test.allocate(KIB, &stream);
    let past_raw = test.allocate_raw(KIB, &stream);
    assert_eq!(test.stats(), before);
    assert_eq!(test.device.live().allocations, 3);
    test.allocator.free_raw(cached_raw).unwrap();
    drop(cached);
    test.allocator.set_config(&config(""));
    test.allocator.free_raw(past_raw).unwrap();
    drop(past);
    assert_eq!(test.stats().allocation.all.current, 0);
    assert_eq!(test.device.live().allocations, 1);
    test.assert_sound();
    test.assert_returns_everything_after(stream);
}

#[test]
fn m23_bad_sizes_are_answered_as_ever() {
    let (test, [stream]) = TestAllocator::with(OFF).with_streams();
    assert!(test.allocate(0, &stream).is_empty());
    let error = test.allocator.allocate(1 << 60, &stream).unwrap_err();
    assert_eq!(error, Error::TooLarge { bytes: 1 << 60 });
    let error = test.allocator.allocate(1 << 59, &stream).unwrap_err();
    let Error::Device(device) = error else { panic!("{error}") };
    assert_eq!(device.kind(), ErrorKind::OutOfMemory);
}

#[test]
fn m23_memory_whose_free_failed_goes_with_the_allocator() {
    for call in [Call::SynchronizeDevice, Call::Free] {
        let (test, [stream]) = TestAllocator::with(OFF).with_streams();
        let memory = test.allocate(KIB, &stream);
        test.device.fail_next(call, 1, ErrorKind::Other);
        drop(memory);
        drop(stream);
        test.device.clear_failures();
        test.assert_returns_everything();
    }
}

#[test]
fn m23_threads_that_free_one_address_free_it_once() {
    const THREADS: usize = 4;
    let (test, [stream]) = TestAllocator::with(OFF).with_streams();
    for round in 0..200 {
        let address = test.allocate_raw(4 * KIB, &stream);
        let start = Barrier::new(THREADS);
        let free = || {
            start.wait();
            test.allocator.free_raw(address).is_ok()
        };
        let freed = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(free)).collect();
            let ended = threads.into_iter().map(ScopedJoinHandle::join);
            ended.filter(|freed| matches!(freed, Ok(true))).count()
        });
        assert_eq!(freed, 1, "round {round}");
    }
}

#[test]
fn m23_memory_whose_free_failed_goes_with_the_next_emptying() {
    for raw in [false, true] {
        let (test, [stream, side]) = TestAllocator::with(OFF).with_streams();
        test.device.fail_next(Call::Free, 1, ErrorKind::Other);
        if raw {
            let address = test.allocate_raw(4 * MIB, &stream);
            assert_eq!(test.allocator.bytes_at(address), Ok(4 * MIB));
            assert!(test.allocator.free_raw(address).is_err());
            assert!(test.allocator.free_raw(address).is_err(), "it counts as freed");
            let freed = Error::InvalidPointer { address, why: PointerProblem::FreedTwice };
            assert_eq!(test.allocator.bytes_at(address), Err(freed.clone()));
            // SAFETY: 1. 2. the stream is this allocator's own.
            assert_eq!(unsafe { test.allocator.record_stream_raw(address, side.handle()) }, Err(freed));
        } else {
            drop(test.allocate(4 * MIB, &stream));
        }
        assert_eq!(test.device.physical_bytes(), 4 * MIB);
        assert_eq!(test.allocator.empty_cache(), Ok(4 * MIB));
        assert_eq!(test.device.physical_bytes(), 0);
    }
}

#[test]
fn m23_memory_of_a_graph_outlasts_its_owner() {
    for interface in Interface::BOTH {
        let (test, [stream]) = TestAllocator::with(OFF).with_streams();
        let (pool, capture) = test.capture(&stream);
        let memory = test.allocate_by(interface, MIB, &stream);
        test.fill(&memory, 1, &stream);
        let address = memory.address();
        drop(memory);
        let graph = capture.end().unwrap();
        assert!(pool.stats().reserved_bytes >= MIB, "{interface:?}");
        launch(&graph, &stream);
        stream.synchronize().unwrap();
        drop((graph, pool));
        assert_ne!(address, 0);
        assert_eq!(test.device.physical_bytes(), 0);
    }
}

#[test]
fn m23_requests_and_frees_break_no_capture_of_another_stream() {
    for mode in [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        let (test, [stream, side]) = TestAllocator::with(OFF).with_streams();
        let before = test.allocate(MIB, &side);
        let pool = test.allocator.create_capture_pool();
        let capture = pool.begin_capture(&stream, mode).unwrap();
        let during = test.allocate(MIB, &side);
        drop((before, during));
        assert!(test.is_captured(&stream), "{mode:?}");
        capture.end().expect("nothing has broken it");
        assert_eq!(test.device.live().allocations, 0, "{mode:?}");
    }
}

#[test]
fn m23_the_idle_memory_of_the_cache_serves_requests_past_it() {
    let (test, [stream]) = TestAllocator::of(64 * MIB, "").with_streams();
    drop(test.allocate(40 * MIB, &stream));
    test.allocator.set_config(&config(OFF));
    drop(test.allocate(40 * MIB, &stream));
    assert_eq!(test.device.physical_bytes(), 0);
}

#[test]
fn m23_memory_whose_free_failed_serves_the_next_request() {
    let (test, [stream]) = TestAllocator::of(64 * MIB, OFF).with_streams();
    let memory = test.allocate(40 * MIB, &stream);
    test.device.fail_next(Call::SynchronizeDevice, 1, ErrorKind::Other);
    drop(memory);
    drop(test.allocate(40 * MIB, &stream));
    assert_eq!(test.device.physical_bytes(), 0);
}
