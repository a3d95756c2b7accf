//! Sources that panic, return memory that is in use, or allocate from the allocator.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use cachette::hal::{Device, DevicePtr};
use cachette::source::{AllocContext, FunctionSource, SourceError};
use cachette::{Allocator, Error, PoolOptions};

use crate::fixture::threads::in_time;
use crate::fixture::{MIB, Pool, TestAllocator};

type Made = Result<DevicePtr, SourceError>;

/// A pool whose segments come from `allocate` and go to the device once `free` has run.
fn pool(
    test: &TestAllocator,
    allocate: impl Fn(u64) -> Made + Send + Sync + 'static,
    free: impl Fn() + Send + Sync + 'static,
) -> Pool {
    let frees = test.device.clone();
    let allocate = move |bytes, _: &AllocContext| allocate(bytes);
    let free = move |ptr, _, _: &AllocContext| {
        free();
        // SAFETY: 1. the tests make it by the device. 2. the allocator frees only unused memory.
        unsafe { frees.free(ptr) }.map_err(|_| SourceError::other("stuck", "try again"))
    };
    // SAFETY: 2. 3. the device's own memory has these properties. 1. The test that breaks it uses no memory twice.
    let source = Arc::new(unsafe { FunctionSource::new("odd", allocate, free) });
    let options = PoolOptions::new().source(source);
    let pool = test.allocator.create_pool_with(options);
    pool.expect("its name is new")
}

/// What makes memory of the test's device.
fn makes(test: &TestAllocator) -> impl Fn(u64) -> Made + Send + Sync + 'static {
    let device = test.device.clone();
    move |bytes| {
        let made = device.allocate(bytes);
        made.map_err(|_| SourceError::out_of_memory("none"))
    }
}

#[test]
fn m8_a_source_that_panics_uses_up_no_limit() {
    let test = TestAllocator::new();
    test.allocator.set_memory_limit(Some(64 * MIB));
    let stream = test.stream();
    let pool = pool(&test, |_| panic!("the source panics"), || ());
    for _ in 0..4 {
        let asked = AssertUnwindSafe(|| drop(pool.allocate(20 * MIB, &stream)));
        assert!(catch_unwind(asked).is_err());
    }
    drop(test.allocate(60 * MIB, &stream));
    test.assert_sound();
}

#[test]
fn m8_memory_whose_free_panics_serves_again() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let panics = Arc::new(AtomicBool::new(true));
    let armed = Arc::clone(&panics);
    let free = move || assert!(!armed.load(Relaxed), "the source panics");
    let pool = pool(&test, makes(&test), free);
    let memory = pool.allocate(12 * MIB, &stream).expect("there is room");
    let address = memory.address();
    drop(memory);
    let emptied = AssertUnwindSafe(|| pool.empty_cache());
    assert!(catch_unwind(emptied).is_err());
    test.assert_sound();
    let again = pool.allocate(12 * MIB, &stream).expect("it is still there");
    assert_eq!(again.address(), address);
    test.allocator.free_raw(again.into_raw()).expect("it is found");
    panics.store(false, Relaxed);
    assert_eq!(pool.empty_cache(), Ok(12 * MIB));
    test.assert_sound();
}

#[test]
fn m8_memory_that_overlaps_a_segment_is_refused() {
    for offset in [0, 4 * MIB] {
        let (test, [stream]) = TestAllocator::new().with_streams();
        let base = test.device.allocate(64 * MIB).expect("there is room");
        let next = Mutex::new(base.address());
        let allocate = move |_| {
            let mut next = next.lock().expect("no thread panicked");
            let at = DevicePtr::new(*next).expect("it is not null");
            *next += offset;
            Ok(at)
        };
        let pool = pool(&test, allocate, || ());
        let memory = pool.allocate(12 * MIB, &stream).expect("there is room");
        let refused = pool.allocate(12 * MIB, &stream).expect_err("it overlaps");
        let message = refused.to_string();
        assert!(matches!(refused, Error::Source(_)), "{message}");
        let whose = format!("overlaps memory of this allocator at {:#x}", base.address());
        assert!(message.contains("odd") && message.contains(&whose), "{message}");
        let stats = pool.stats();
        assert_eq!((stats.segments, stats.reserved_bytes), (1, 12 * MIB));
        assert_eq!(memory.address(), base.address());
        drop((memory, pool));
        assert_eq!(test.device.physical_bytes(), 0, "it went back once");
    }
}

#[test]
fn m8_a_request_of_a_source_to_its_own_pool_is_refused() {
    for same_stream in [true, false] {
        let answer = in_time(move || {
            let (test, [stream]) = TestAllocator::new().with_streams();
            let inner = if same_stream { stream.clone() } else { test.stream() };
            let own: Arc<Mutex<Option<Pool>>> = Arc::default();
            let (inside, make) = (Arc::clone(&own), makes(&test));
            let allocate = move |bytes| {
                let nested = inside.lock().expect("no thread panicked").take();
                if let Some(pool) = nested {
                    let refused = pool.allocate(512, &inner).expect_err("it would wait");
                    return Err(SourceError::other(refused.to_string(), "ask elsewhere"));
                }
                make(bytes)
            };
            let pool = pool(&test, allocate, || ());
            let second = test.allocator.open_pool(pool.id()).expect("it is there");
            *own.lock().expect("no thread panicked") = Some(second);
            let refused = pool.allocate(MIB, &stream).expect_err("its source fails");
            drop(pool.allocate(MIB, &stream).expect("it does not ask again"));
            refused.to_string()
        });
        let text = answer.expect("the request does not hang");
        assert!(text.contains("inside a call of that source"), "{text}");
    }
}

#[test]
fn m8_a_source_may_use_the_default_pool_and_a_pool_with_another_source() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let (inner, lower) = (pool(&test, makes(&test), || ()), stream.clone());
    let (below, make) = (test.allocator.open_pool(inner.id()).expect("it is there"), makes(&test));
    let allocator = test.allocator.clone();
    let allocate = move |bytes| {
        drop(allocator.allocate(MIB, &lower).expect("there is room"));
        drop(below.allocate(MIB, &lower).expect("there is room"));
        make(bytes)
    };
    let outer = pool(&test, allocate, || ());
    drop(outer.allocate(12 * MIB, &stream).expect("there is room"));
    assert_eq!(inner.stats().reserved_bytes, 2 * MIB);
    test.assert_sound();
}

/// A source whose memory is that of `below`, and what it has allocated there.
fn source_over(below: impl Fn(u64) -> u64 + Send + Sync + 'static) -> (Arc<FunctionSource>, Arc<Mutex<Vec<u64>>>) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeps = Arc::clone(&kept);
    let allocate = move |bytes, _: &AllocContext| {
        let address = below(bytes);
        keeps.lock().expect("no thread panicked").push(address);
        Ok(DevicePtr::new(address).expect("it has bytes"))
    };
    // SAFETY: 1. 2. 3. what the allocator below allocates has these properties, and is kept.
    (Arc::new(unsafe { FunctionSource::new("outer", allocate, |_, _, _| Ok(())) }), kept)
}

#[test]
fn m8_memory_of_the_same_allocator_is_refused_and_stays_with_its_owner() {
    for test in TestAllocator::both("") {
        let stream = test.stream();
        // A pool with a source, the default pool, and blocks that begin inside a segment.
        let lower = Arc::new(pool(&test, makes(&test), || ()));
        let _first = [test.allocate(MIB, &stream), lower.allocate(MIB, &stream).expect("there is room")];
        let (allocator, asked) = (test.allocator.clone(), stream.clone());
        let in_default = source_over(move |bytes| allocator.allocate(bytes, &asked).expect("there is room").into_raw());
        let asked = stream.clone();
        let in_lower = source_over(move |bytes| lower.allocate(bytes, &asked).expect("there is room").into_raw());
        for (source, kept) in [in_default, in_lower] {
            let outer = test.allocator.create_pool_with(PoolOptions::new().source(source)).expect("its name is new");
            for bytes in [MIB, 30 * MIB] {
                let refused = outer.allocate(bytes, &stream).expect_err("the allocator has it").to_string();
                let address = kept.lock().expect("no thread panicked").pop().expect("the source was asked");
                assert!(refused.contains(&format!("overlaps memory of this allocator at {address:#x}")), "{refused}");
                assert!(test.allocator.bytes_at(address).expect("it is allocated") >= bytes);
                test.allocator.free_raw(address).expect("it has one block");
            }
            assert_eq!(outer.stats().reserved_bytes, 0);
        }
        test.assert_sound();
    }
}

#[test]
fn m8_a_source_may_return_memory_of_another_allocator() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let below = Allocator::new(test.device.clone());
    let asked = below.create_stream().expect("nothing fails");
    let (source, _kept) = source_over(move |bytes| below.allocate(bytes, &asked).expect("there is room").into_raw());
    let outer = test.allocator.create_pool_with(PoolOptions::new().source(source)).expect("its name is new");
    let memory = outer.allocate(MIB, &stream).expect("there is room");
    test.allocator.free_raw(memory.into_raw()).expect("it has one block");
    test.assert_sound();
}

#[test]
fn m8_memory_beyond_the_last_address_or_that_ends_inside_known_memory_is_refused() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let known = test.allocate(20 * MIB, &stream);
    let beyond = [511, MIB - 1, 2 * MIB - 1].map(|less| (u64::MAX - less, 512, "beyond the last address"));
    let overlapping = (known.address() - 10 * MIB, 20 * MIB, "overlaps memory of this allocator");
    for (base, bytes, promised) in beyond.into_iter().chain([overlapping]) {
        let at = DevicePtr::new(base).unwrap();
        // SAFETY: 1. 2. 3. the address is never used.
        let source = unsafe { FunctionSource::new("far", move |_, _| Ok(at), |_, _, _| Ok(())) };
        let pool = test.allocator.create_pool_with(PoolOptions::new().source(Arc::new(source))).unwrap();
        let error = pool.allocate(bytes, &stream).unwrap_err().to_string();
        assert!(error.contains(promised), "{base:#x}: {error}");
    }
}
