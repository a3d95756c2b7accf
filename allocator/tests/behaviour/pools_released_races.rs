//! A pool that ends while a request is on its way to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cachette::PoolOptions;
use cachette::hal::{Call, DevicePtr};
use cachette::pool::Filter;
use cachette::sleep::Contents;
use cachette::source::{AllocContext, FunctionSource, SourceError};
use cachette_hal_host::HostConfig;

use crate::fixture::{Allocation, ELASTIC, MIB, Pool, Stream, TestAllocator};

/// A route leads a request to its pool. While the device allocates, another thread ends the route, which was the last
/// user of the pool, and makes another pool. Returns the memory of the request, and the other pool.
fn request_whose_route_ends(
    config: &str,
    call: Call,
    options: PoolOptions,
) -> (TestAllocator, Stream, Allocation, Pool) {
    let (test, hook) = TestAllocator::hooked(HostConfig::default(), config);
    let stream = test.stream();
    let first = test.allocator.create_pool();
    let id = first.id();
    test.allocator.begin_allocate_to_pool(id, Filter::All).expect("it is there");
    drop(first);
    let (allocator, other) = (test.allocator.clone(), stream.clone());
    let amid = hook.start(call, None, move || {
        allocator.end_allocate_to_pool(id).expect("it has begun");
        let second = allocator.create_pool_with(options).expect("it is new");
        drop(second.enter(&other).expect("it is there"));
        second
    });
    let memory = test.allocate(4 * MIB, &stream);
    (test, stream, memory, amid.result())
}

#[test]
fn p6_no_other_pool_gets_the_memory_of_a_request_whose_route_ends() {
    for (text, call) in [("", Call::Allocate), (ELASTIC, Call::CreateBacking)] {
        let (test, _stream, memory, second) = request_whose_route_ends(text, call, PoolOptions::new());
        assert_eq!(second.stats().allocations, 0, "{text}: nothing was allocated from the second pool");
        drop((memory, second));
        test.allocator.check().expect("every invariant holds");
    }
}

#[test]
fn z_the_sleep_of_another_pool_discards_no_memory_of_a_request_whose_route_ends() {
    let (test, stream, memory, second) = request_whose_route_ends(ELASTIC, Call::CreateBacking, PoolOptions::new());
    test.fill(&memory, 7, &stream);
    second.sleep(Contents::Discard).expect("it has no memory");
    second.wake().expect("it has no memory");
    assert_eq!(test.content(&memory, &stream), Some(7), "the bytes are there");
}

#[test]
fn p8_a_source_frees_no_segment_that_it_did_not_make() {
    let freed = Arc::new(AtomicU64::new(0));
    let also = Arc::clone(&freed);
    let make = |_: u64, _: &AllocContext| Err(SourceError::out_of_memory("this source makes nothing"));
    let free = move |at: DevicePtr, _: u64, _: &AllocContext| {
        also.store(at.address(), Relaxed);
        Ok(())
    };
    // SAFETY: 1. 2. 3. it makes nothing.
    let source = Arc::new(unsafe { FunctionSource::new("an empty source", make, free) });
    let options = PoolOptions::new().source(source);
    let (_test, _stream, memory, second) = request_whose_route_ends("", Call::Allocate, options);
    drop(memory);
    second.empty_cache().expect("it has nothing");
    assert_eq!(freed.load(Relaxed), 0, "the source was given a segment of the device");
}
