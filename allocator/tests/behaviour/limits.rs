//! Limits on the memory that the allocator reserves.

use cachette::Error;
use cachette::hal::Call;

use crate::fixture::{GIB, MIB, TestAllocator, config};

#[test]
fn m15_a_fraction_outside_0_to_1_is_refused() {
    let test = TestAllocator::new();
    assert!((test.allocator.memory_fraction() - 1.0).abs() < 1e-9);
    test.allocator.set_memory_fraction(0.5).unwrap();
    assert!((test.allocator.memory_fraction() - 0.5).abs() < 1e-9);
    for wrong in [-0.1, 1.1, -f64::MIN_POSITIVE, 1.0 + f64::EPSILON, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = test.allocator.set_memory_fraction(wrong).unwrap_err();
        assert!(matches!(error, Error::InvalidFraction(_)), "{wrong}");
        assert!(error.to_string().contains("from 0 to 1"), "{error}");
        assert_eq!(test.allocator.memory_limit(), Some(GIB / 2));
    }
}

#[test]
fn m15_the_whole_is_no_bound_and_nothing_is_one() {
    let (test, [stream]) = TestAllocator::of(64 * MIB, "").with_streams();
    test.allocator.set_memory_fraction(1.0).unwrap();
    assert_eq!(test.allocator.memory_limit(), None);
    drop(test.allocate(64 * MIB, &stream));
    test.allocator.empty_cache().unwrap();
    test.allocator.set_memory_fraction(0.0).unwrap();
    assert_eq!(test.allocator.memory_limit(), Some(0));
    assert!(test.allocator.allocate(1, &stream).is_err());
    assert!(test.allocator.allocate(0, &stream).is_ok());
}

#[test]
fn m15_a_bound_below_what_is_in_use_only_stops_growth() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let live = test.allocate(12 * MIB, &stream);
    drop(test.allocate(20 * MIB, &stream));
    test.allocator.set_memory_limit(Some(10 * MIB));
    // The cache still serves.
    let hit = test.allocate(20 * MIB, &stream);
    let error = test.allocator.allocate(22 * MIB, &stream).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    drop(hit);
    // What is unused is given back in the attempt, and what is in use stays.
    assert!(test.allocator.allocate(22 * MIB, &stream).is_err());
    assert_eq!(test.device.physical_bytes(), 12 * MIB);
    test.fill(&live, 4, &stream);
    assert_eq!(test.content(&live, &stream), Some(4));
    test.allocator.set_memory_limit(None);
    drop(test.allocate(22 * MIB, &stream));
    drop(live);
    test.assert_sound();
}

#[test]
fn m15_the_bound_can_come_with_the_configuration() {
    let test = TestAllocator::with("per_process_memory_fraction:0.25");
    assert_eq!(test.allocator.memory_limit(), Some(GIB / 4));
    let test = TestAllocator::with("memory_limit:100M,per_process_memory_fraction:0.5");
    assert_eq!(test.allocator.memory_limit(), Some(100 * MIB));
}

#[test]
fn m15_the_bound_is_not_passed_by_several_threads_together() {
    let test = TestAllocator::phantom(GIB, "memory_limit:100M");
    let device = test.device.clone();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = test.stream();
                for step in 0..200_u64 {
                    let live = test.allocator.allocate((12 + step % 5 * 10) * MIB, &stream);
                    assert!(device.physical_bytes() <= 100 * MIB);
                    drop(live);
                }
            });
        }
    });
    assert!(test.stats().reserved_bytes.all.peak <= 100 * MIB);
    test.assert_sound();
}

#[test]
fn m21_a_request_beyond_the_bound_is_rejected_if_configured_and_else_room_is_made() {
    let (test, [stream, side]) = TestAllocator::with("memory_limit:40M,throw_on_cudamalloc_oom:True").with_streams();
    drop(test.allocate(30 * MIB, &side));
    let calls = test.calls_of(Call::Free, || {
        let error = test.allocator.allocate(12 * MIB, &stream).unwrap_err();
        let Error::OutOfMemory(report) = error else { panic!("{error}") };
        assert!(report.rejected);
    });
    assert_eq!(calls, 0, "nothing is given back for a request that is rejected");
    assert_eq!(test.stats().num_oom_rejections, 1);
    assert_eq!(test.device.calls(Call::Allocate), 1);
    // Within the bound everything is as always.
    assert!(test.allocator.allocate(30 * MIB, &side).is_ok());
    assert!(test.allocator.allocate(10 * MIB, &stream).is_ok());
    test.allocator.set_config(&config(""));
    drop(test.allocate(12 * MIB, &stream));
    let stats = test.stats();
    assert_eq!((stats.num_oom_rejections, stats.num_ooms, stats.num_alloc_retries), (1, 1, 1));
}

#[test]
fn m15_no_more_is_available_than_the_bound_permits() {
    let (test, [stream]) = TestAllocator::of(64 * MIB, "").with_streams();
    test.allocator.set_memory_limit(Some(30 * MIB));
    assert_eq!(test.allocator.largest_available(), Ok(30 * MIB));
    let held = test.allocate(12 * MIB, &stream);
    assert_eq!(test.allocator.largest_available(), Ok(18 * MIB));
    drop(test.allocate(18 * MIB, &stream));
    drop(held);
    assert_eq!(test.allocator.largest_available(), Ok(18 * MIB));
    test.allocator.set_memory_limit(Some(MIB));
    assert_eq!(test.allocator.largest_available(), Ok(18 * MIB), "a free block needs no room");
}
