//! cudarc's slices over Cachette, in one process that finds the imitation of NVIDIA's driver, or a GPU.
//!
//! `test` and `run` start it where the loader finds `libcuda.so`.

#![expect(clippy::unwrap_used, reason = "these are tests, and a lint sees only part of them")]

#[path = "../../../bindings/cudarc/tests/slices/hold.rs"]
mod hold;

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use cachette::hal::StreamRef;
use cachette::{Allocator, Backends};
use cachette_cudarc_allocator::{Error, install};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode, cudaError_enum as Status};
use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DriverError, result};
use hold::Hold;

const LEN: usize = 4096;
const OLD: [u8; LEN] = [7; LEN];

/// A context that allocates from a cache.
fn setting() -> (Allocator, Arc<CudaContext>) {
    let allocator = Allocator::new(Backends::open("cuda:0").unwrap());
    let context = CudaContext::new(0).unwrap();
    install(&context, &allocator).unwrap();
    (allocator, context)
}

fn address(slice: &impl DevicePtr<u8>) -> u64 {
    slice.device_ptr(slice.stream()).0
}

/// Whether the stream does not reach this point for a while, in which it could finish all its work.
fn is_stopped(stream: &CudaStream) -> bool {
    let reached = stream.record_event(None).unwrap();
    sleep(Duration::from_millis(50));
    !reached.is_complete()
}

#[test]
fn every_slice_comes_from_the_cache_and_goes_back() {
    let (allocator, context) = setting();
    let stream = context.new_stream().unwrap();
    for round in 0..100_u8 {
        let copied = stream.clone_htod(&[round; LEN]).unwrap();
        let zeros = stream.alloc_zeros::<u8>(LEN).unwrap();
        let empty = stream.null::<f64>().unwrap();
        let cloned = copied.try_clone().unwrap();
        assert_eq!(allocator.allocated_bytes(), 3 * LEN as u64);
        assert_eq!(stream.clone_dtoh(&cloned).unwrap(), [round; LEN]);
        assert_eq!(stream.clone_dtoh(&zeros).unwrap(), [0; LEN]);
        assert!(empty.is_empty());
    }
    let stats = allocator.stats();
    assert_eq!((stats.allocation.all.allocated, stats.num_device_alloc), (300, 1));
    assert_eq!(allocator.allocated_bytes(), 0);
    context.check_err().unwrap();
    allocator.check().unwrap();
}

/// cudarc lets the slice's stream wait before it frees, and the next slice there has the same memory.
#[test]
fn memory_is_reused_behind_a_use_in_another_stream() {
    let (_allocator, context) = setting();
    let (stream, reader) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let slice = stream.clone_htod(&OLD).unwrap();
    let mut copy = reader.alloc_zeros::<u8>(LEN).unwrap();
    context.synchronize().unwrap();
    let (freed, hold) = (address(&slice), Hold::new(&reader));
    reader.memcpy_dtod(&slice, &mut copy).unwrap();
    drop(slice);
    let next = stream.alloc_zeros::<u8>(LEN).unwrap();
    assert_eq!(address(&next), freed);
    assert!(is_stopped(&stream));
    drop(hold);
    assert_eq!(reader.clone_dtoh(&copy).unwrap(), OLD);
}

#[test]
fn a_slice_upgraded_on_another_stream_is_freed_behind_that_stream() {
    let (allocator, context) = setting();
    let (stream, other) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let leaked = stream.clone_htod(&OLD).unwrap().leak();
    stream.synchronize().unwrap();
    // SAFETY: the memory has this length, and comes from the context's allocator.
    let slice = unsafe { other.upgrade_device_ptr::<u8>(leaked, LEN) };
    let mut copy = other.alloc_zeros::<u8>(LEN).unwrap();
    let hold = Hold::new(&other);
    other.memcpy_dtod(&slice, &mut copy).unwrap();
    drop(slice);
    let next = stream.alloc_zeros::<u8>(LEN).unwrap();
    assert!(address(&next) != leaked || is_stopped(&stream));
    drop(hold);
    assert_eq!(other.clone_dtoh(&copy).unwrap(), OLD);
    drop((next, copy));
    assert_eq!(allocator.allocated_bytes(), 0);
}

/// The cache gives memory of the first stream to the second, for which it must wait for the first.
#[test]
fn a_stream_that_the_program_dropped_still_orders_its_memory() {
    let (allocator, context) = setting();
    allocator.set_memory_limit(Some(24 << 20));
    let first = context.new_stream().unwrap();
    drop(first.alloc_zeros::<u8>(20 << 20).unwrap());
    let ended = Arc::downgrade(&first);
    drop(first);
    assert!(ended.upgrade().is_some(), "the cache keeps it");
    let second = context.new_stream().unwrap();
    let slice = second.alloc_zeros::<u8>(20 << 20).unwrap();
    assert_eq!(second.clone_dtoh(&slice.slice(..LEN)).unwrap(), [0; LEN]);
    drop(slice);
    allocator.empty_cache().unwrap();
    context.check_err().unwrap();
    allocator.check().unwrap();
}

#[test]
fn borrowed_and_per_thread_streams_have_the_drivers_memory() {
    let (allocator, context) = setting();
    context.bind_to_thread().unwrap();
    let raw = result::stream::create(result::stream::StreamKind::NonBlocking).unwrap();
    // Another library may use the handle with Cachette.
    // SAFETY: 1. and 2. The handle is valid on every thread, at all times.
    let _adopted = unsafe { allocator.adopt_stream(StreamRef::from_raw(2)) }.unwrap();
    // SAFETY: the stream is live, and destroyed below.
    let borrowed = unsafe { context.wrap_borrowed_stream(raw) };
    for stream in [&borrowed, &context.per_thread_stream()] {
        let slice = stream.clone_htod(&OLD).unwrap();
        assert_eq!(stream.clone_dtoh(&slice).unwrap(), OLD);
    }
    assert_eq!(allocator.stats().allocation.all.allocated, 0);
    drop(borrowed);
    // SAFETY: nothing uses it any more.
    unsafe { result::stream::destroy(raw) }.unwrap();
    context.check_err().unwrap();
}

/// The cache cannot wait later for a stream that may end.
#[test]
fn a_borrowed_stream_frees_cached_memory_when_its_work_is_over() {
    let (allocator, context) = setting();
    let owner = context.new_stream().unwrap();
    // SAFETY: `owner` outlives it.
    let borrowed = unsafe { context.wrap_borrowed_stream(owner.cu_stream()) };
    let leaked = context.default_stream().clone_htod(&OLD).unwrap().leak();
    context.synchronize().unwrap();
    // SAFETY: the memory has this length, and comes from the context's allocator.
    let slice = unsafe { borrowed.upgrade_device_ptr::<u8>(leaked, LEN) };
    let hold = Hold::new(&borrowed);
    let reached = borrowed.record_event(None).unwrap();
    let release = std::thread::spawn(move || {
        sleep(Duration::from_millis(50));
        drop(hold);
    });
    drop(slice);
    assert!(reached.is_complete());
    release.join().unwrap();
    assert_eq!(allocator.allocated_bytes(), 0);
    // Once the cache keeps the stream, every wrapper of it is served.
    let kept = [owner.clone_htod(&OLD).unwrap(), borrowed.clone_htod(&OLD).unwrap()];
    assert_eq!(allocator.allocated_bytes(), 2 * LEN as u64);
    drop(kept);
    context.check_err().unwrap();
}

#[test]
fn a_capture_has_the_graphs_memory_and_cannot_free_the_caches() {
    let (allocator, context) = setting();
    // SAFETY: one stream has all uses.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream().unwrap();
    let mut kept = stream.clone_htod(&OLD).unwrap();
    let freed = stream.clone_htod(&OLD).unwrap();
    let served = allocator.stats().allocation.all.allocated;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    let temporary = stream.alloc_zeros::<u8>(LEN).unwrap();
    stream.memcpy_dtod(&temporary, &mut kept).unwrap();
    drop(temporary);
    context.check_err().unwrap();
    drop(freed);
    assert_eq!(context.check_err(), Err(DriverError(Status::CUDA_ERROR_INVALID_VALUE)));
    let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
    assert_eq!(allocator.stats().allocation.all.allocated, served);
    assert_eq!(allocator.allocated_bytes(), 2 * LEN as u64);
    graph.launch().unwrap();
    assert_eq!(stream.clone_dtoh(&kept).unwrap(), [0; LEN]);
}

#[test]
fn out_of_memory_is_the_drivers_word() {
    let (allocator, context) = setting();
    allocator.set_memory_limit(Some(4 << 20));
    let stream = context.default_stream();
    let refused = stream.alloc_zeros::<u64>(1 << 20).unwrap_err();
    assert_eq!(refused.0, Status::CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(stream.clone_dtoh(&stream.alloc_zeros::<u8>(LEN).unwrap()).unwrap(), [0; LEN]);
}

#[test]
fn threads_share_a_stream() {
    let (allocator, context) = setting();
    let stream = context.new_stream().unwrap();
    std::thread::scope(|scope| {
        for number in 0..4_u8 {
            let stream = &stream;
            scope.spawn(move || {
                for round in 0..50 {
                    let bytes = [number.wrapping_mul(50).wrapping_add(round); LEN];
                    let slice = stream.clone_htod(&bytes).unwrap();
                    assert_eq!(stream.clone_dtoh(&slice).unwrap(), bytes);
                }
            });
        }
    });
    assert_eq!(allocator.stats().allocation.all.allocated, 200);
    assert_eq!(allocator.allocated_bytes(), 0);
    context.check_err().unwrap();
}

#[test]
fn a_wrong_device_and_a_late_install_say_what_to_do() {
    let (allocator, context) = setting();
    assert!(matches!(install(&context, &allocator), Err(Error::TooLate)));
    let used = CudaContext::new(0).unwrap();
    drop(used.default_stream().alloc_zeros::<u8>(1).unwrap());
    let late = install(&used, &allocator).unwrap_err();
    assert!(late.to_string().contains("directly after `CudaContext::new`"), "{late}");
    let host = Allocator::new(Backends::open("host").unwrap());
    let other = install(&CudaContext::new(0).unwrap(), &host).unwrap_err();
    assert!(other.to_string().contains("`Backends::open(\"cuda:0\")`"), "{other}");
}
