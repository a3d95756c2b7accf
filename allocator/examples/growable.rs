//! A KV cache that gets its size after the graphs were captured, and gives half of it back.
//!
//! `cargo run -p cachette --example growable` runs on host memory. On a GPU:
//! `cargo run -p cachette --features cuda --example growable -- cuda:0`.

use std::error::Error;

use cachette::hal::{CaptureMode, Device, DevicePtr};
use cachette::human::Bytes;
use cachette::{Allocator, Backends, Growable, Stream};

/// What the cache may have at most. These are addresses, so more than the device has is fine.
const MOST: u64 = 64 << 30;
/// The part that the graph writes.
const STEP: u64 = 4 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let target = std::env::args().nth(1).unwrap_or_else(|| "host".to_owned());
    let allocator = Allocator::new(Backends::open(&target)?);
    let stream = allocator.create_stream()?;

    let cache = allocator.allocate_growable(MOST, &stream)?;
    cache.commit(0..STEP)?;
    println!("addresses for {}, memory for {}", Bytes(cache.bytes()), Bytes(cache.committed()));

    // The graph has addresses of the cache, which never change.
    let pool = allocator.create_capture_pool();
    let capture = pool.begin_capture(&stream, CaptureMode::Global)?;
    fill(&cache, 7, &stream)?;
    let graph = capture.end()?;

    // Now the program knows what the graphs need. The rest of the memory is for the cache.
    let size = (allocator.device().memory_info()?.free / 2).min(512 << 20) / STEP * STEP;
    cache.commit(STEP..size)?;
    println!("the graph is captured: {} of cache", Bytes(cache.committed()));
    // SAFETY: 1. the cache lives until the stream is synchronized. 2. The pool has one graph. 3. The stream belongs to
    // this allocator.
    unsafe { graph.launch(&stream) }?;

    // Another model needs memory: it gets what the cache gives back, without a call to the driver for new memory.
    cache.decommit(size / 2..size)?;
    let reserved = allocator.reserved_bytes();
    let other = allocator.create_stream()?;
    stream.synchronize()?;
    let model = allocator.allocate(size / 4, &other)?;
    let grown = allocator.reserved_bytes() - reserved;
    println!("{} for another model, {} of them new", Bytes(model.bytes()), Bytes(grown));

    // SAFETY: as above.
    unsafe { graph.launch(&stream) }?;
    stream.synchronize()?;
    println!("the graph is still valid; the cache has {}", Bytes(cache.committed()));
    Ok(())
}

/// Queues a fill of the first part of the cache.
fn fill(cache: &Growable, byte: u8, stream: &Stream) -> Result<(), Box<dyn Error>> {
    let at = DevicePtr::new(cache.address()).ok_or("the cache has addresses")?;
    let transfer = stream.device().transfer()?;
    // SAFETY: 1. the stream is live. 3. The part is committed while the graph that is captured here is launched.
    unsafe { transfer.fill(at, byte, STEP, stream.handle()) }?;
    Ok(())
}
