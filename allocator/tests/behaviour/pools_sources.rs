//! Pools whose memory comes from a source.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use cachette::hal::{Device, DevicePtr, ErrorKind};
use cachette::source::{AllocContext, FunctionSource, SourceError, SourceErrorKind};
use cachette::{Error, PoolOptions};
use cachette_hal_host::HostDevice;

use crate::fixture::{MIB, Pool, Stream, TestAllocator, config};

/// What a source was asked, in order.
type Calls = Arc<Mutex<Vec<String>>>;

/// A source over the host device that writes down what it is asked.
fn source(device: &HostDevice, calls: &Calls) -> FunctionSource {
    let note = |calls: &Calls| {
        let calls = Arc::clone(calls);
        move |text: String| calls.lock().expect("no thread panicked").push(text)
    };
    let (of_allocate, of_free) = (device.clone(), device.clone());
    let (allocated, freed) = (note(calls), note(calls));
    let allocate = move |bytes, _: &AllocContext| {
        let made = of_allocate.allocate(bytes).map_err(|error| match error.kind() {
            ErrorKind::OutOfMemory => SourceError::out_of_memory("no room"),
            _ => SourceError::other("broken", "mend it"),
        })?;
        allocated(format!("allocate {}", bytes / MIB));
        Ok(made)
    };
    let free = move |ptr, bytes, _: &AllocContext| {
        freed(format!("free {}", bytes / MIB));
        // SAFETY: 1. it was allocated above. 2. the allocator frees only unused memory.
        unsafe { of_free.free(ptr) }.map_err(|_| SourceError::other("stuck", "try again"))
    };
    // SAFETY: 1. 2. 3. the device's own memory has these properties.
    unsafe { FunctionSource::new("test", allocate, free) }
}

/// A pool over such a source, and what the source is asked.
fn pool_over(test: &TestAllocator) -> (Pool, Calls) {
    let calls = Calls::default();
    let source = Arc::new(source(&test.device, &calls));
    (with(test, source), calls)
}

fn with(test: &TestAllocator, source: Arc<FunctionSource>) -> Pool {
    let options = PoolOptions::new().source(source);
    test.allocator.create_pool_with(options).expect("its name is new")
}

/// What was asked since the last time.
fn asked(calls: &Calls) -> Vec<String> {
    std::mem::take(&mut calls.lock().expect("no thread panicked"))
}

/// A source that answers every request with `answer`.
fn answering(answer: impl Fn() -> Result<DevicePtr, SourceError> + Send + Sync + 'static) -> Arc<FunctionSource> {
    // SAFETY: 1. 2. 3. the answers are errors.
    Arc::new(unsafe { FunctionSource::new("stubborn", move |_, _| answer(), |_, _, _| Ok(())) })
}

#[test]
fn m8_segments_come_from_the_source_are_cut_kept_and_given_back() {
    for test in TestAllocator::both("") {
        let stream = test.stream();
        let (pool, calls) = pool_over(&test);
        let allocate = |bytes| pool.allocate(bytes, &stream).expect("there is room");
        let memory = [allocate(MIB), allocate(MIB)];
        test.fill(&memory[0], 6, &stream);
        assert_eq!(test.content(&memory[0], &stream), Some(6));
        drop(memory);
        drop(allocate(MIB));
        drop(test.allocate(MIB, &stream));
        test.allocator.empty_cache().expect("nothing fails");
        assert_eq!(asked(&calls), ["allocate 2"], "the cache is above the source, and the default pool beside it");
        drop(allocate(30 * MIB));
        assert_eq!(pool.empty_cache().expect("nothing fails"), 32 * MIB);
        let mut given = asked(&calls);
        given.sort();
        assert_eq!(given, ["allocate 30", "free 2", "free 30"]);
        test.assert_sound();
        drop(allocate(MIB));
        drop(pool);
        assert_eq!(asked(&calls), ["allocate 2", "free 2"]);
        assert_eq!(test.device.physical_bytes(), 0);
    }
}

#[test]
fn p9_the_source_is_kept_until_its_last_segment_is_back() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let calls = Calls::default();
    let source = Arc::new(source(&test.device, &calls));
    let watch = Arc::downgrade(&source);
    let pool = with(&test, source);
    let memory = pool.allocate(12 * MIB, &stream).expect("there is room");
    drop(pool);
    assert!(watch.upgrade().is_some());
    drop(memory);
    test.allocator.empty_cache().expect("nothing fails");
    assert_eq!(asked(&calls).last().map(String::as_str), Some("free 12"));
    assert!(watch.upgrade().is_none(), "nothing needs it any more");
}

#[test]
fn p9_memory_returns_to_the_source_after_the_allocator_is_gone() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let (pool, calls) = pool_over(&test);
    let memory = pool.allocate(12 * MIB, &stream).expect("there is room");
    let TestAllocator { device, allocator, .. } = test;
    drop((pool, allocator, stream));
    assert_eq!(device.physical_bytes(), 12 * MIB);
    drop(memory);
    assert_eq!(asked(&calls).last().map(String::as_str), Some("free 12"));
    assert_eq!(device.physical_bytes(), 0);
}

#[test]
fn p10_a_pool_with_a_source_is_never_elastic() {
    let (test, [stream]) = TestAllocator::with("expandable_segments:True").with_streams();
    let (pool, calls) = pool_over(&test);
    let held = pool.allocate(12 * MIB, &stream).expect("there is room");
    assert_eq!(pool.stats().segments, 1);
    let texts = ["", "expandable_segments:True", ""];
    for (text, more) in texts.into_iter().zip([14, 16, 18]) {
        test.allocator.set_config(&config(text));
        drop(pool.allocate(more * MIB, &stream).expect("there is room"));
    }
    assert_eq!(asked(&calls), ["allocate 12", "allocate 14", "allocate 16", "allocate 18"]);
    assert!(test.allocator.elastic_segments().is_empty());
    drop(held);
}

#[test]
fn m8_a_source_without_memory_is_out_of_memory() {
    let (test, [stream]) = TestAllocator::of(40 * MIB, "").with_streams();
    let (pool, calls) = pool_over(&test);
    drop(test.allocate(30 * MIB, &stream));
    let memory = pool.allocate(30 * MIB, &stream).expect("the default pool gives way");
    assert_eq!(test.device.physical_bytes(), 30 * MIB);
    let refused = pool.allocate(30 * MIB, &stream);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
    drop(memory);
    drop(pool.allocate(30 * MIB, &stream).expect("there is room"));
    assert_eq!(asked(&calls), ["allocate 30"]);
    let null = || DevicePtr::new(0).ok_or(SourceError::out_of_memory("the function returned null"));
    let pool = with(&test, answering(null));
    let refused = pool.allocate(MIB, &stream);
    assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
    assert_usable(&test, &pool, &stream);
}

#[test]
fn m8_an_address_that_is_not_aligned_is_given_back_and_refused() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let freed = Arc::new(AtomicU64::new(0));
    let back = Arc::clone(&freed);
    let allocate = |_, _: &AllocContext| Ok(DevicePtr::new(0x10040).expect("it is not null"));
    let free = move |ptr: DevicePtr, bytes, _: &AllocContext| {
        back.store(ptr.address() + bytes, Relaxed);
        Ok(())
    };
    // SAFETY: 1. 2. 3. the address is refused, so no work uses it.
    let source = unsafe { FunctionSource::new("crooked", allocate, free) };
    let pool = with(&test, Arc::new(source));
    let refused = pool.allocate(MIB, &stream).expect_err("it is not aligned");
    let message = refused.to_string();
    assert!(matches!(refused, Error::Source(_)), "{message}");
    assert!(message.contains("crooked") && message.contains("0x10040"), "{message}");
    assert_eq!(freed.swap(0, Relaxed), 0x10040 + 2 * MIB);
    assert_usable(&test, &pool, &stream);
}

#[test]
fn m8_another_failure_of_a_source_is_told_at_once() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    drop(test.allocate(12 * MIB, &stream));
    let pool = with(&test, answering(|| Err(SourceError::other("the link is down", "call the operator"))));
    let failed = pool.allocate(MIB, &stream).expect_err("it is down");
    let Error::Source(error) = &failed else {
        panic!("{failed}");
    };
    assert_eq!((error.kind(), error.text()), (SourceErrorKind::Other, "the link is down"));
    assert_eq!(test.device.physical_bytes(), 12 * MIB, "no retry step ran");
    assert_usable(&test, &pool, &stream);
}

#[test]
fn m8_a_source_that_fails_to_free_loses_nothing() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let (pool, _calls) = pool_over(&test);
    let memory = pool.allocate(12 * MIB, &stream).expect("there is room");
    let address = memory.address();
    drop(memory);
    test.device.fail_next(cachette::hal::Call::Free, 1, ErrorKind::Other);
    assert!(pool.empty_cache().is_err());
    assert_eq!(pool.stats().reserved_bytes, 12 * MIB);
    let again = pool.allocate(12 * MIB, &stream).expect("it is still there");
    assert_eq!(again.address(), address);
    drop(again);
    assert_eq!(pool.empty_cache().expect("nothing fails"), 12 * MIB);
    test.assert_sound();
}

/// Checks that the pool and its allocator are as if nothing had been asked.
fn assert_usable(test: &TestAllocator, pool: &Pool, stream: &Stream) {
    let stats = pool.stats();
    assert_eq!((stats.allocations, stats.segments, stats.reserved_bytes), (0, 0, 0));
    test.assert_sound();
    drop(test.allocate(MIB, stream));
}
