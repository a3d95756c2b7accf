//! Streams and requests that are refused, each with what to do.

use cachette::{Allocator, Backends};
use cachette_cudarc::{Error, StreamAllocator};
use cudarc::driver::CudaContext;

use crate::Setting;

pub(crate) fn other_device() {
    // A machine with one GPU has no other.
    let Ok(other) = CudaContext::new(1) else { return };
    let refused = StreamAllocator::new(&Setting::new().allocator, &other.new_stream().unwrap()).unwrap_err();
    assert!(matches!(refused, Error::OtherDevice { stream: 1, .. }), "{refused}");
    assert!(refused.to_string().contains("`Backends::open(\"cuda:1\")`"), "{refused}");
}

pub(crate) fn host_allocator() {
    let allocator = Allocator::new(Backends::open("host").unwrap());
    let refused = StreamAllocator::new(&allocator, &Setting::new().stream).unwrap_err();
    assert!(refused.to_string().contains("to host device 0; open the allocator with"), "{refused}");
}

pub(crate) fn per_thread_stream() {
    let Setting { allocator, context, .. } = Setting::new();
    let refused = StreamAllocator::new(&allocator, &context.per_thread_stream()).unwrap_err();
    assert!(matches!(refused, Error::PerThreadStream), "{refused}");
    assert!(StreamAllocator::new(&allocator, &context.default_stream()).is_ok());
}

pub(crate) fn out_of_memory() {
    let Setting { allocator, cache, .. } = Setting::new();
    allocator.set_memory_limit(Some(1 << 20));
    let refused = cache.alloc::<u64>(1 << 20).unwrap_err();
    assert!(matches!(refused, Error::Allocator(cachette::Error::OutOfMemory(_))), "{refused}");
    assert!(refused.to_string().contains("8.00 MiB"), "{refused}");
}

pub(crate) fn too_many_elements() {
    let refused = Setting::new().cache.alloc::<u64>(usize::MAX).unwrap_err();
    assert!(matches!(refused, Error::Allocator(cachette::Error::TooManyElements { .. })), "{refused}");
}
