//! Pinned memory: sizes, reuse, statistics, and memory by address.

use cachette::hal::{Call, CaptureMode, Feature};
use cachette::pinned::{PinnedAllocation, TimeStat};
use cachette::{Error, PointerProblem};
use cachette_hal_host::HostConfig;

use crate::fixture::{TestAllocator, begin_capture};

const KIB: u64 = 1 << 10;
/// A block that fills its segment.
pub(crate) const WHOLE: u64 = 2 << 20;

/// Pinned memory of a [`TestAllocator`].
pub(crate) type Staged = PinnedAllocation;

impl TestAllocator {
    /// Allocates pinned memory.
    pub(crate) fn pin(&self, bytes: u64) -> Staged {
        let pinned = self.allocator.pinned();
        pinned.allocate(bytes).expect("there is room")
    }

    /// Driver calls for pinned memory so far.
    pub(crate) fn pinning_calls(&self) -> u64 {
        let calls = [Call::AllocatePinned, Call::FreePinned, Call::Register, Call::Unregister];
        calls.map(|call| self.device.calls(call)).iter().sum()
    }
}

#[test]
fn n1_no_bytes_are_no_memory_and_too_many_are_refused() {
    let test = TestAllocator::new();
    let pinned = test.allocator.pinned();
    let calls = test.calls_during(|| {
        let empty = test.pin(0);
        assert!(empty.is_empty());
        assert_eq!((empty.bytes(), empty.requested()), (0, 0));
        assert_eq!(empty.device_address(), Ok(None));
        // SAFETY: 1. there is nothing to write.
        assert_eq!(unsafe { empty.as_slice() }, b"");
        empty.record_stream(&test.allocator.default_stream().expect("it is there"));
        assert!(empty.into_raw().is_null());
        assert_eq!(pinned.allocate_raw(0), Ok(std::ptr::null_mut()));
        assert_eq!(pinned.free_raw(std::ptr::null_mut()), Ok(()));
        for bytes in [1 << 60, u64::MAX] {
            let error = pinned.allocate(bytes).expect_err("no system has so much memory");
            assert_eq!(error, Error::TooLarge { bytes });
        }
    });
    assert_eq!(calls, 0);
}

#[test]
fn n1_the_host_and_the_device_see_the_same_bytes() {
    let test = TestAllocator::new();
    let mut memory = test.pin(KIB);
    // SAFETY: 1. no device knows the memory yet.
    unsafe { memory.as_mut_slice() }.fill(7);
    // SAFETY: 1. no device knows the memory yet.
    assert_eq!(unsafe { memory.as_slice() }, [7; 1 << 10]);
    let seen = memory.device_address().expect("it is pinned");
    let seen = seen.expect("there are bytes").address();
    assert_eq!(seen, memory.ptr().addr().get() as u64);
}

#[test]
fn n2_threads_share_the_memory() {
    let test = TestAllocator::new();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let test = &test;
            scope.spawn(move || {
                for round in 0..200_u8 {
                    let mut memory = test.pin(KIB << (round % 3));
                    // SAFETY: 1. no device knows the memory.
                    unsafe { memory.as_mut_slice() }.fill(thread);
                    std::thread::yield_now();
                    // SAFETY: 1. no device knows the memory.
                    let whole = unsafe { memory.as_slice() };
                    assert!(whole.iter().all(|byte| *byte == thread));
                }
            });
        }
    });
    let stats = test.allocator.pinned().stats();
    assert_eq!(stats.active_requests.current, 0);
    assert_eq!(stats.active_requests.allocated, 800);
    assert!(stats.num_host_alloc <= 12, "{stats:?}");
    test.assert_returns_everything();
}

#[test]
fn n7_every_figure_is_counted_and_reset() {
    let test = TestAllocator::new();
    let pinned = test.allocator.pinned();
    let (small, large) = (test.pin(WHOLE), test.pin(2 * WHOLE));
    let stats = pinned.stats();
    assert_eq!((stats.num_host_alloc, stats.num_host_free), (2, 0));
    assert_eq!(stats.host_alloc_time.count, 2);
    assert!(stats.host_alloc_time.min <= stats.host_alloc_time.avg());
    let bytes = |stat: cachette::Stat| [stat.current, stat.peak, stat.allocated, stat.freed];
    let both = 3 * WHOLE;
    assert_eq!(bytes(stats.allocated_bytes), [both, both, both, 0]);
    assert_eq!(bytes(stats.active_bytes), [both, both, both, 0]);
    assert_eq!(bytes(stats.active_requests), [2, 2, 2, 0]);
    assert_eq!(bytes(stats.allocations), [2, 2, 2, 0]);
    drop(small);
    let stats = pinned.stats();
    assert_eq!(bytes(stats.active_bytes), [2 * WHOLE, both, both, WHOLE], "a freed block is not active");
    assert_eq!(bytes(stats.allocations), [2, 2, 2, 0], "and still held");
    assert_eq!(pinned.empty_cache(), Ok(WHOLE));
    let stats = pinned.stats();
    assert_eq!(bytes(stats.allocated_bytes), [2 * WHOLE, both, both, WHOLE]);
    assert_eq!((stats.num_host_free, stats.host_free_time.count), (1, 1));
    pinned.reset_peak_stats();
    pinned.reset_accumulated_stats();
    let stats = pinned.stats();
    assert_eq!(bytes(stats.allocated_bytes), [2 * WHOLE, 2 * WHOLE, 0, 0]);
    assert_eq!(bytes(stats.active_requests), [1, 1, 0, 0]);
    assert_eq!((stats.num_host_alloc, stats.num_host_free), (0, 0));
    assert_eq!(stats.host_alloc_time, TimeStat::default());
    drop(large);
    assert_eq!(bytes(pinned.stats().active_requests), [0, 1, 0, 1]);
}

#[test]
fn n7_a_peak_is_never_below_the_current_value() {
    let test = TestAllocator::new();
    let pinned = test.allocator.pinned();
    // The third request would get the last-freed block without a search.
    drop(test.pin(KIB));
    drop(test.pin(KIB));
    pinned.reset_peak_stats();
    assert_eq!(pinned.stats().active_bytes.peak, 0);
    let again = test.pin(KIB);
    let stats = pinned.stats();
    assert_eq!([stats.active_bytes.current, stats.active_bytes.peak], [KIB; 2]);
    assert_eq!([stats.active_requests.current, stats.active_requests.peak], [1; 2]);
    drop(again);
}

#[test]
fn n8_emptying_frees_idle_segments_and_no_device_cache() {
    let test = TestAllocator::new();
    let pinned = test.allocator.pinned();
    let held = test.pin(WHOLE);
    drop((test.pin(WHOLE), test.pin(8 * WHOLE)));
    test.allocator.empty_cache().expect("nothing fails");
    assert_eq!(test.device.live().pinned, 3, "that was device memory's");
    assert_eq!(pinned.empty_cache(), Ok(9 * WHOLE));
    assert_eq!(test.device.live().pinned, 1);
    assert_eq!(pinned.empty_cache(), Ok(0));
    drop(held);
    assert_eq!(test.pin(WHOLE).bytes(), WHOLE);
    test.assert_returns_everything();
}

#[test]
fn nothing_goes_back_to_the_driver_by_itself() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    for round in 0..100 {
        let memory = test.pin(KIB << (round % 5));
        memory.record_stream(&stream);
    }
    stream.synchronize().expect("it runs dry");
    assert_eq!(test.device.calls(Call::FreePinned), 0);
    test.assert_returns_everything_after(stream);
}

#[test]
fn memory_is_known_by_its_address_alone() {
    let test = TestAllocator::new();
    let pinned = test.allocator.pinned();
    let raw = pinned.allocate_raw(KIB).expect("there is room");
    assert_eq!(pinned.free_raw(raw), Ok(()));
    let owned = test.pin(KIB);
    assert_eq!(owned.ptr().as_ptr(), raw, "both serve from one cache");
    let raw = owned.into_raw();
    assert_eq!(pinned.free_raw(raw), Ok(()));
    test.assert_returns_everything();
}

#[test]
fn an_address_that_cannot_be_freed_is_named_for_what_it_is() {
    let test = TestAllocator::new();
    let pinned = test.allocator.pinned();
    let why = |ptr: *mut u8| match pinned.free_raw(ptr) {
        Err(Error::InvalidPinnedPointer { address, why }) => {
            assert_eq!(address, ptr.addr() as u64);
            why
        }
        other => panic!("{other:?}"),
    };
    let raw = pinned.allocate_raw(WHOLE).expect("there is room");
    let start = raw.addr() as u64;
    let inside = PointerProblem::Interior { start, offset: 16 };
    assert_eq!(why(raw.wrapping_add(16)), inside);
    assert_eq!(why(raw.wrapping_add(2 << 20)), PointerProblem::Foreign);
    assert_eq!(pinned.free_raw(raw), Ok(()));
    assert_eq!(why(raw), PointerProblem::Free);
    assert_eq!(why(raw.wrapping_add(16)), PointerProblem::Free);
    let stream = test.stream();
    let held = test.hold(&stream);
    let owned = test.pin(WHOLE);
    assert_eq!(why(owned.ptr().as_ptr()), PointerProblem::Owned);
    owned.record_stream(&stream);
    drop(owned);
    assert_eq!(why(raw), PointerProblem::FreedTwice);
    // SAFETY: 1. 2. the stream is the allocator's own.
    let error = unsafe { pinned.record_stream_raw(raw, &test.allocator, stream.handle()) };
    assert!(matches!(error, Err(Error::InvalidPinnedPointer { .. })));
    drop(held);
    assert_eq!(why(std::ptr::dangling_mut()), PointerProblem::Foreign);
    let message = pinned.free_raw(raw.wrapping_add(2 << 20)).expect_err("foreign");
    assert!(message.to_string().starts_with("invalid pinned pointer 0x"));
}

#[test]
fn a_device_without_pinned_memory_says_so() {
    let test = TestAllocator::on(HostConfig::default().without(Feature::HostMemory), "");
    let error = test.allocator.pinned().allocate(KIB).expect_err("missing");
    assert!(matches!(error, Error::Missing(_)), "{error}");
    assert_eq!(test.allocator.pinned().empty_cache(), Ok(0));
}

#[test]
fn memory_may_outlive_its_allocator() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let (plain, used) = (test.pin(WHOLE), test.pin(8 * WHOLE));
    used.record_stream(&stream);
    drop(test.pin(2 * WHOLE));
    let TestAllocator { device, allocator, .. } = test;
    drop((stream, allocator));
    assert_eq!(device.live().pinned, 2, "what was free went with it");
    drop(plain);
    assert_eq!(device.live().pinned, 1);
    drop(used);
    assert_eq!(device.live(), cachette_hal_host::Live::default());
}

#[test]
fn memory_may_be_dropped_by_threads_while_its_allocator_goes() {
    for round in 0..100 {
        let (test, [stream]) = TestAllocator::new().with_streams();
        let owners: Vec<Vec<Staged>> = (0..3).map(|_| (0..8).map(|log2| test.pin(1 << log2)).collect()).collect();
        for memory in owners.iter().flatten().step_by(1 + round % 3) {
            memory.record_stream(&stream);
        }
        let TestAllocator { device, allocator, .. } = test;
        drop(stream);
        std::thread::scope(|scope| {
            for owned in owners {
                scope.spawn(move || drop(owned));
            }
            scope.spawn(move || drop(allocator));
        });
        assert_eq!(device.live(), cachette_hal_host::Live::default());
    }
}

#[test]
fn memory_is_made_and_freed_while_a_stream_is_captured() {
    let modes = [CaptureMode::Global, CaptureMode::ThreadLocal];
    for (mode, cached) in modes.into_iter().flat_map(|mode| [(mode, true), (mode, false)]) {
        let config = if cached { "" } else { "pinned_max_cached_size_mb:1" };
        let (test, [stream]) = TestAllocator::with(config).with_streams();
        let pool = test.allocator.create_capture_pool();
        let capture = pool.begin_capture(&stream, mode).expect("it begins");
        drop(test.pin(WHOLE));
        let emptied = test.allocator.pinned().empty_cache();
        assert_eq!(emptied, Ok(if cached { WHOLE } else { 0 }));
        assert!(test.is_captured(&stream), "{mode:?}");
        capture.end().expect("it is whole");
    }
    let (test, [stream]) = TestAllocator::new().with_streams();
    let pool = test.allocator.create_capture_pool();
    drop(begin_capture(&pool, &stream));
    test.assert_returns_everything_after((pool, stream));
}
