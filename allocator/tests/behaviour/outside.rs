//! Memory that a program takes past the cache: counted with the limit, and given room as a request is.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use cachette::evict::Priority;
use cachette::hal::{self, Device, DevicePtr, ErrorKind};
use cachette::{OutsideKind, PoolOptions};

use crate::fixture::{ELASTIC, MIB, TestAllocator};

/// Takes memory of the device past the cache.
fn take(test: &TestAllocator, bytes: u64) -> hal::Result<DevicePtr> {
    let mut taken = None;
    test.allocator.take_outside(OutsideKind::Device, bytes, || {
        taken = Some(test.device.allocate(bytes)?);
        Ok(())
    })?;
    Ok(taken.expect("the call has succeeded"))
}

fn give(test: &TestAllocator, memory: DevicePtr, bytes: u64) {
    // SAFETY: 1. it came from the device, once. 2. No work uses it.
    unsafe { test.device.free(memory) }.expect("the device frees what it gave");
    test.allocator.give_outside(OutsideKind::Device, bytes);
}

/// Checks that the device has what the allocator and the calls past it hold.
fn check(test: &TestAllocator) {
    test.allocator.check().expect("every invariant holds");
    let held = test.allocator.reserved_bytes() + test.allocator.outside().device.current;
    assert_eq!(test.device.physical_bytes(), held);
}

#[test]
fn the_limit_is_for_the_cache_and_memory_past_it_together() {
    for config in ["", ELASTIC] {
        let (test, [stream]) = TestAllocator::with(config).with_streams();
        test.allocator.set_memory_limit(Some(64 * MIB));
        let outside = take(&test, 40 * MIB).unwrap();
        let live = test.allocate(24 * MIB, &stream);
        let error = take(&test, 2 * MIB).unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::OutOfMemory, None), "{config}");
        let error = test.allocator.allocate(2 * MIB, &stream).unwrap_err().to_string();
        assert!(error.contains("may hold 64.00 MiB, less 40.00 MiB that the program took past it"), "{error}");
        assert!(error.contains("the memory limit was reached"), "{error}");
        assert_eq!(test.device.physical_bytes(), 64 * MIB);
        check(&test);
        give(&test, outside, 40 * MIB);
        let more = test.allocate(40 * MIB, &stream);
        let stat = test.allocator.outside().device;
        assert_eq!((stat.current, stat.peak, stat.allocated, stat.freed), (0, 40 * MIB, 40 * MIB, 40 * MIB));
        drop((live, more));
        check(&test);
    }
}

#[test]
fn idle_memory_makes_room_as_much_as_is_lacking() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    test.allocator.set_memory_limit(Some(64 * MIB));
    drop([16, 17, 18].map(|mib| test.allocate(mib * MIB, &stream)));
    assert_eq!(test.allocator.reserved_bytes(), 52 * MIB);
    assert!(take(&test, 65 * MIB).is_err());
    assert_eq!(test.allocator.reserved_bytes(), 52 * MIB, "nothing helps a call beyond the whole limit");
    let outside = take(&test, 26 * MIB).unwrap();
    let kept = test.allocator.reserved_bytes();
    assert!((16 * MIB..=38 * MIB).contains(&kept), "two segments are enough, {kept}");
    give(&test, outside, 26 * MIB);
    let whole = take(&test, 64 * MIB).unwrap();
    assert_eq!(test.allocator.reserved_bytes(), 0);
    give(&test, whole, 64 * MIB);
}

#[test]
fn idle_memory_of_a_pool_in_use_makes_no_room() {
    for config in ["", ELASTIC] {
        let (test, [stream]) = TestAllocator::with(config).with_streams();
        test.allocator.set_memory_limit(Some(64 * MIB));
        let pool = test.allocator.create_pool();
        drop(pool.allocate(40 * MIB, &stream).unwrap());
        stream.synchronize().unwrap();
        assert!(take(&test, 40 * MIB).is_err(), "{config}");
        assert_eq!(test.allocator.reserved_bytes(), 40 * MIB, "{config}");
        check(&test);
    }
}

#[test]
fn the_device_is_asked_again_after_idle_memory_was_released() {
    for config in ["", ELASTIC] {
        let (test, [stream]) = TestAllocator::of(64 * MIB, config).with_streams();
        drop(test.allocate(48 * MIB, &stream));
        let outside = take(&test, 40 * MIB).unwrap();
        assert!(test.device.physical_bytes() <= 64 * MIB);
        let live = test.allocate(24 * MIB, &stream);
        let error = take(&test, 4 * MIB).unwrap_err();
        assert_eq!((error.kind(), test.allocator.stats().num_ooms), (ErrorKind::OutOfMemory, 1), "the device refused");
        give(&test, outside, 40 * MIB);
        drop(live);
        check(&test);
    }
}

#[test]
fn memory_that_another_stream_still_uses_is_waited_for() {
    for config in ["", ELASTIC] {
        let (test, [stream, user]) = TestAllocator::of(64 * MIB, config).with_streams();
        let memory = test.allocate(48 * MIB, &stream);
        test.fill(&memory, 3, &user);
        memory.record_stream(&user);
        drop(memory);
        let outside = take(&test, 40 * MIB).unwrap();
        give(&test, outside, 40 * MIB);
        check(&test);
    }
}

#[test]
fn evictable_pools_make_room_last() {
    let test = TestAllocator::of(64 * MIB, ELASTIC);
    let stream = test.allocator.create_stream().unwrap();
    let pool = test.allocator.create_pool_with(PoolOptions::new().evictable(Priority(1))).unwrap();
    let memory = pool.allocate(40 * MIB, &stream).unwrap();
    let outside = take(&test, 32 * MIB).unwrap();
    assert_eq!(test.allocator.stats().num_evictions, 1);
    give(&test, outside, 32 * MIB);
    drop(memory);
}

#[test]
fn nothing_is_released_or_waited_for_with_never_block() {
    let (test, [stream]) = TestAllocator::with("never_block:True").with_streams();
    test.allocator.set_memory_limit(Some(64 * MIB));
    drop(test.allocate(48 * MIB, &stream));
    assert!(take(&test, 40 * MIB).is_err());
    assert_eq!(test.allocator.reserved_bytes(), 48 * MIB);
}

#[test]
fn a_call_that_fails_leaves_everything_as_before() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    test.allocator.set_memory_limit(Some(64 * MIB));
    drop(test.allocate(16 * MIB, &stream));
    let refused = || Err(hal::Error::from_status(ErrorKind::Other, "cuMemCreate", 719));
    let error = test.allocator.take_outside(OutsideKind::Device, 8 * MIB, refused).unwrap_err();
    assert_eq!((error.status(), test.allocator.outside().is_empty()), (Some(719), true));
    assert_eq!((test.allocator.reserved_bytes(), test.allocator.stats().num_ooms), (16 * MIB, 0));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = test.allocator.take_outside(OutsideKind::Device, 8 * MIB, || panic!("a defect of the caller"));
    }));
    assert!(panicked.is_err());
    let whole = take(&test, 64 * MIB).unwrap();
    give(&test, whole, 64 * MIB);
    check(&test);
}

#[test]
fn more_is_never_given_back_than_was_taken() {
    let test = TestAllocator::new();
    let outside = take(&test, 4 * MIB).unwrap();
    give(&test, outside, 4 * MIB);
    test.allocator.give_outside(OutsideKind::Device, 4 * MIB);
    assert_eq!(test.allocator.outside().device.current, 0);
    check(&test);
}

#[test]
fn managed_and_host_memory_are_counted_and_not_limited() {
    let test = TestAllocator::new();
    test.allocator.set_memory_limit(Some(64 * MIB));
    for kind in [OutsideKind::Managed, OutsideKind::Host] {
        test.allocator.take_outside(kind, 100 * MIB, || Ok(())).unwrap();
    }
    let refused = || Err(hal::Error::new(ErrorKind::OutOfMemory, "cuMemHostAlloc"));
    assert!(test.allocator.take_outside(OutsideKind::Host, MIB, refused).is_err());
    let outside = take(&test, 64 * MIB).unwrap();
    test.allocator.give_outside(OutsideKind::Managed, 30 * MIB);
    let by_kind = test.allocator.outside().by_kind().map(|(name, stat)| (name, stat.current / MIB, stat.peak / MIB));
    assert_eq!(by_kind, [("device", 64, 64), ("managed", 70, 100), ("host", 100, 100)]);
    let page = test.allocator.metrics().to_string();
    assert!(
        page.contains("cachette_outside_bytes{device=\"0\",backend=\"host\",kind=\"managed\"} 73400320\n"),
        "{page}"
    );
    let snapshot = test.allocator.snapshot();
    let [shown] = &*snapshot.outside else { panic!("one device: {:?}", snapshot.outside) };
    assert_eq!((shown.bytes / MIB, shown.managed / MIB, shown.host / MIB), (64, 70, 100));
    give(&test, outside, 64 * MIB);
    test.allocator.reset_peaks();
    test.allocator.reset_totals();
    let stat = test.allocator.outside().host;
    assert_eq!((stat.peak, stat.allocated), (100 * MIB, 0));
}

#[test]
fn threads_that_take_memory_and_requests_together_keep_the_limit() {
    const LIMIT: u64 = 96 * MIB;
    for config in ["", ELASTIC] {
        let test = TestAllocator::with(config);
        test.allocator.set_memory_limit(Some(LIMIT));
        let most = AtomicU64::new(0);
        thread::scope(|scope| {
            for number in 1..=6_u64 {
                let (test, most) = (&test, &most);
                scope.spawn(move || {
                    let stream = test.allocator.create_stream().unwrap();
                    for turn in 0..60 {
                        let bytes = (1 + (turn * number) % 23) * 2 * MIB;
                        let outside = (turn % 2 == 0).then(|| take(test, bytes).ok()).flatten();
                        let cached = test.allocator.allocate(bytes, &stream).ok();
                        // A chunk that moved keeps its memory until its old addresses are unmapped, also if it is released.
                        if config.is_empty() {
                            most.fetch_max(test.device.physical_bytes(), Relaxed);
                        }
                        drop(cached);
                        if let Some(memory) = outside {
                            give(test, memory, bytes);
                        }
                    }
                });
            }
        });
        let most = most.into_inner();
        assert!(!config.is_empty() || (LIMIT / 2..=LIMIT).contains(&most), "{} MiB", most / MIB);
        check(&test);
        let whole = take(&test, LIMIT).unwrap();
        give(&test, whole, LIMIT);
    }
}
