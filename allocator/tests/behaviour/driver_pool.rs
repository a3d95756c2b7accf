//! `backend:cudaMallocAsync`: requests go to the driver's pool, below the statistics, the history and the limit.

use cachette::hal::{Call, ErrorKind, Feature};
use cachette::history::HistoryOptions;
use cachette::{Error, TraceAction};
use cachette_hal_host::HostConfig;

use crate::fixture::memory::Interface;
use crate::fixture::threads::{is_waiting, start};
use crate::fixture::{KIB, MIB, TestAllocator, assert_sound, fail_call};

const DRIVER: &str = "backend:cudaMallocAsync";

#[test]
fn each_request_and_each_free_goes_to_the_drivers_pool() {
    for interface in Interface::BOTH {
        let (test, [stream]) = TestAllocator::with(DRIVER).with_streams();
        for bytes in [100, KIB, 3 * MIB, 30 * MIB] {
            let memory = test.allocate_by(interface, bytes, &stream);
            let rounded = bytes.next_multiple_of(512);
            let stats = test.stats();
            assert_eq!(stats.allocated_bytes.all.current, rounded);
            assert_eq!(stats.reserved_bytes.all.current, rounded, "nothing but the request is held");
            test.fill(&memory, 7, &stream);
            assert_eq!(test.content(&memory, &stream), Some(7));
            drop(memory);
            assert_eq!(test.stats().reserved_bytes.all.current, 0);
        }
        assert_eq!((test.device.calls(Call::AllocateOn), test.device.calls(Call::FreeOn)), (4, 4));
        assert_eq!((test.device.calls(Call::Allocate), test.device.calls(Call::Free)), (0, 0));
        assert_sound(&test.allocator);
    }
}

#[test]
fn small_raw_memory_side_by_side_is_freed_by_address() {
    let (test, [stream, side]) = TestAllocator::with(DRIVER).with_streams();
    let streams = [&stream, &side].into_iter().cycle();
    let mut held: Vec<u64> =
        (0..40).zip(streams).map(|(n, stream)| test.allocate_raw(512 * (1 + n % 3), stream)).collect();
    assert_eq!(test.allocator.base_allocation(held[7]).unwrap(), (held[7], 1024));
    held.swap(0, 39);
    for address in held {
        test.allocator.free_raw(address).unwrap();
        let again = test.allocator.free_raw(address).unwrap_err();
        assert!(matches!(again, Error::InvalidPointer { .. }), "{again}");
    }
    assert_eq!(test.stats().allocated_bytes.all.current, 0);
    assert_sound(&test.allocator);
}

#[test]
fn a_free_waits_for_nothing_and_keeps_the_streams_order() {
    let (test, [stream]) = TestAllocator::with(DRIVER).with_streams();
    let first = test.allocate(12 * MIB, &stream);
    let (address, hold) = (first.address(), test.hold(&stream));
    test.fill(&first, 1, &stream);
    drop(first);
    let second = test.allocate(12 * MIB, &stream);
    assert_eq!(second.address(), address, "the driver reuses it behind the work before");
    test.fill(&second, 2, &stream);
    hold.release();
    assert_eq!(test.content(&second, &stream), Some(2));
    assert_eq!((test.device.calls(Call::Wait), test.device.calls(Call::Poll)), (0, 0));
}

#[test]
fn memory_that_another_stream_uses_is_freed_behind_that_use() {
    for interface in Interface::BOTH {
        let (test, [stream, side]) = TestAllocator::with(DRIVER).with_streams();
        let memory = test.allocate_by(interface, 12 * MIB, &stream);
        let (address, hold) = (memory.address(), test.hold(&side));
        test.fill(&memory, 1, &side);
        memory.record_stream(&side);
        drop(memory);
        assert_eq!(test.stats().reserved_bytes.all.current, 0, "no host thread waits for the use");
        assert_eq!(test.device.calls(Call::StreamWait), 1, "the device does");
        let next = test.allocate(12 * MIB, &stream);
        test.fill(&next, 2, &stream);
        hold.release();
        assert_eq!(test.content(&next, &stream), Some(2), "{address:#x} was written in order");
        drop(next);
        assert_sound(&test.allocator);
    }
}

#[test]
fn the_limit_applies_above_the_drivers_pool() {
    let (test, [stream]) = TestAllocator::with("backend:cudaMallocAsync,memory_limit:16M").with_streams();
    let held = test.allocate(10 * MIB, &stream);
    let refused = test.allocator.allocate(10 * MIB, &stream).unwrap_err();
    let Error::OutOfMemory(report) = refused else { panic!("{refused}") };
    assert_eq!((report.reserved, report.limit), (10 * MIB, Some(16 * MIB)));
    drop(held);
    test.allocate(16 * MIB, &stream);
}

#[test]
fn a_history_and_a_snapshot_show_each_request() {
    let (test, [stream]) = TestAllocator::with(DRIVER).with_streams();
    test.allocator.record_history(HistoryOptions::default());
    let held = test.allocate(KIB, &stream);
    drop(test.allocate(3 * MIB, &stream));
    let snapshot = test.allocator.snapshot();
    let segments: Vec<_> = snapshot.segments.iter().map(|segment| (segment.address, segment.bytes)).collect();
    assert_eq!(segments, [(held.address(), KIB)]);
    let actions: Vec<_> = snapshot.traces[0].events.iter().map(|event| event.action).collect();
    let request = [TraceAction::SegmentAlloc, TraceAction::Alloc];
    let free = [TraceAction::FreeRequested, TraceAction::FreeCompleted, TraceAction::SegmentFree];
    let wanted = [&request[..], &request, &free].concat();
    assert_eq!(actions, wanted);
}

#[test]
fn pools_keep_their_cache_and_a_capture_uses_its_pool() {
    let (test, [stream]) = TestAllocator::with(DRIVER).with_streams();
    let (pool, capture) = test.capture(&stream);
    let address = test.allocate(KIB, &stream).address();
    assert_eq!(test.allocate(KIB, &stream).address(), address, "the pool of the capture has a cache");
    drop(capture);
    assert_eq!(test.device.calls(Call::AllocateOn), 0);
    drop(pool);
}

#[test]
fn without_the_drivers_pool_requests_say_so() {
    let host = HostConfig::default().without(Feature::StreamOrdered);
    let (test, [stream]) = TestAllocator::on(host, DRIVER).with_streams();
    let refused = test.allocator.allocate(KIB, &stream).unwrap_err();
    assert!(matches!(refused, Error::Missing(_)), "{refused:?}");
    assert!(refused.to_string().contains("stream-ordered memory"), "{refused}");
}

#[test]
fn the_backend_is_chosen_at_the_start() {
    let (test, [stream]) = TestAllocator::with(DRIVER).with_streams();
    test.allocator.set_config(&"never_block:True".parse().unwrap());
    drop(test.allocate(KIB, &stream));
    drop(test.allocate(KIB, &test.stream()));
    assert_eq!(test.device.calls(Call::AllocateOn), 2);
    assert_eq!(test.allocator.config().to_string(), "backend:cudaMallocAsync,never_block:True");
}

#[test]
fn emptying_the_cache_trims_the_drivers_pool() {
    let (test, [stream]) = TestAllocator::with(DRIVER).with_streams();
    drop(test.allocate(30 * MIB, &stream));
    test.allocator.empty_cache().unwrap();
    assert_eq!(test.device.calls(Call::Trim), 1);
    test.assert_returns_everything_after(stream);
}

#[test]
fn a_failing_driver_call_loses_no_memory() {
    for nth in 1.. {
        let (test, [stream, side]) = TestAllocator::with(DRIVER).with_streams();
        let act = || {
            let memory = test.allocator.allocate(12 * MIB, &stream)?;
            memory.record_stream(&side);
            drop(memory);
            drop(test.allocator.allocate(12 * MIB, &stream)?);
            test.allocator.empty_cache()
        };
        let (result, failed) = fail_call(&test.device, nth, ErrorKind::Other, act);
        if !failed {
            assert_eq!(result, Ok(0));
            break;
        }
        test.allocator.empty_cache().unwrap();
        assert_sound(&test.allocator);
        test.assert_returns_everything_after((stream, side));
    }
}

#[test]
fn a_request_waits_for_memory_that_another_stream_frees() {
    let (test, [stream, side]) = TestAllocator::of(16 * MIB, DRIVER).with_streams();
    let (first, hold) = (test.allocate(12 * MIB, &stream), test.hold(&stream));
    test.fill(&first, 1, &stream);
    drop(first);
    let (allocator, also) = (test.allocator.clone(), side.clone());
    let asked = start(move || allocator.allocate(12 * MIB, &also).map(drop));
    assert!(is_waiting(&asked));
    hold.release();
    assert_eq!(asked.recv().unwrap(), Ok(()));
}

#[test]
fn what_the_drivers_pool_does_not_use_serves_other_pools() {
    let (test, [stream]) = TestAllocator::of(64 * MIB, DRIVER).with_streams();
    drop(test.allocate(40 * MIB, &stream));
    let pool = test.allocator.create_pool();
    drop(pool.allocate(40 * MIB, &stream).unwrap());
    drop(pool);
    let refused = test.allocator.allocate(80 * MIB, &stream).unwrap_err();
    assert!(matches!(refused, Error::OutOfMemory(_)), "{refused}");
}
