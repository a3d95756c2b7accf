//! A pool whose segments come from NCCL or, by default, from host memory.
//!
//! `cargo run -p cachette-sources --example segments -- nccl` needs an NVIDIA GPU and the library.

use std::error::Error;
use std::sync::Arc;

use cachette::hal::{AnyDevice, Device, Vendor};
use cachette::source::{FunctionSource, Source, SourceError};
use cachette::{Allocator, Backends, PoolOptions};
use cachette_sources::Nccl;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("nccl") {
        return use_pool(Backends::open("cuda:0")?, Arc::new(Nccl::load(Vendor::Nvidia)?));
    }
    let device = Backends::open("host")?;
    use_pool(device.clone(), Arc::new(host_source(&device)))
}

fn use_pool(device: AnyDevice, source: Arc<dyn Source>) -> Result<(), Box<dyn Error>> {
    println!("segments come from {}", source.name());
    let allocator = Allocator::new(device);
    let stream = allocator.create_stream()?;
    let pool = allocator.create_pool_with(PoolOptions::new().source(source))?;

    // While the guard lives, this thread's requests on the stream use the pool.
    let guard = pool.enter(&stream)?;
    for elements in [128, 10_000, 1 << 18, 3 << 18, 3 << 20, 10 << 20] {
        let mut buffer = allocator.allocate_buffer::<u32>(elements, &stream)?;
        let numbers: Vec<u32> = (7..).take(elements).collect();
        buffer.write(&numbers)?;
        assert_eq!(buffer.read()?, numbers, "{elements} elements came back changed");
    }
    drop(guard);
    let stats = pool.stats();
    println!("the pool holds {} segments, {} bytes", stats.segments, stats.reserved_bytes);
    assert_eq!(pool.empty_cache()?, stats.reserved_bytes);
    Ok(())
}

/// A source that takes its segments from the host device.
fn host_source(device: &AnyDevice) -> FunctionSource {
    let failed = |error: cachette::hal::Error| SourceError::other(error.to_string(), error.recovery().advice());
    let (allocates, frees) = (device.clone(), device.clone());
    let allocate = move |bytes, _: &_| allocates.allocate(bytes).map_err(failed);
    // SAFETY: 1. `allocate` made it. 2. is the promise of `Source::free`.
    let free = move |ptr, _, _: &_| unsafe { frees.free(ptr) }.map_err(failed);
    // SAFETY: 1. 2. 3. the device's memory has these properties.
    unsafe { FunctionSource::new("host", allocate, free) }
}
