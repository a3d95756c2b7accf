//! A program whose layers need 1.5 times the memory that it may hold.
//!
//! `cargo run -p cachette --example eviction` runs on host memory. On a GPU:
//! `cargo run --release -p cachette --features cuda --example eviction -- cuda:0 8` uses layers of 8 GiB in total.
//! There it also copies the same bytes without the allocator, and compares the times.

use std::error::Error;
use std::time::{Duration, Instant};

use cachette::evict::Priority;
use cachette::hal::Device;
use cachette::human::Bytes;
use cachette::{Allocator, Backends, Buffer, Config, Pool, PoolOptions, Stream};

const LAYERS: usize = 12;
const ROUNDS: usize = 3;

struct Layer {
    pool: Pool,
    weights: Buffer<u8>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let target = words.next().unwrap_or_else(|| "host".to_owned());
    let total = words.next().map_or(Ok(192 << 20), |gib| gib.parse::<usize>().map(|gib| gib << 30))?;
    let limit = total / 3 * 2;
    let config = Config::builder().memory_limit(limit as u64).build()?;
    let allocator = Allocator::with_config(Backends::open(&target)?, &config);
    let stream = allocator.create_stream()?;
    let bytes = total / LAYERS;
    println!("{LAYERS} layers of {}, and a limit of {}", Bytes(bytes as u64), Bytes(limit as u64));

    // The last layers evict the first ones, whose contents are kept in host memory.
    let layers = (1_u8..).take(LAYERS).map(|byte| layer(&allocator, bytes, byte, &stream));
    let layers = layers.collect::<Result<Vec<_>, _>>()?;

    let (begun, before) = (Instant::now(), allocator.stats().num_evictions);
    for _ in 0..ROUNDS {
        for (byte, layer) in (1_u8..).zip(&layers) {
            // Wakes the layer, and evicts those that were used least recently.
            let _here = layer.pool.make_resident()?;
            // A real program queues its kernels here. This one reads both ends.
            let ends = [layer.weights.slice(..16)?.read()?, layer.weights.slice(bytes - 16..)?.read()?].concat();
            assert!(ends.iter().all(|found| *found == byte), "layer {byte} has lost its contents");
        }
    }
    let (time, evictions) = (begun.elapsed(), allocator.stats().num_evictions - before);
    println!("{ROUNDS} rounds: {evictions} evictions in {time:.2?}, {} held", Bytes(allocator.reserved_bytes()));

    drop(layers);
    let copies = copies(&allocator, bytes, &stream)? * u32::try_from(evictions)?;
    println!("as many copies to page-locked memory and back take {copies:.2?}");
    println!("the program takes {:.2} times that", time.as_secs_f64() / copies.as_secs_f64());
    Ok(())
}

fn layer(allocator: &Allocator, bytes: usize, byte: u8, stream: &Stream) -> Result<Layer, cachette::Error> {
    let pool = allocator.create_pool_with(PoolOptions::new().evictable(Priority::default()))?;
    let weights = {
        let _inside = pool.enter(stream)?;
        let mut weights = allocator.allocate_buffer(bytes, stream)?;
        weights.fill(byte)?;
        weights
    };
    Ok(Layer { pool, weights })
}

/// How long one layer takes from the device to page-locked memory and back.
fn copies(allocator: &Allocator, bytes: usize, stream: &Stream) -> Result<Duration, Box<dyn Error>> {
    let device = allocator.allocate(bytes as u64, stream)?;
    let host = allocator.pinned().allocate(bytes as u64)?;
    let transfer = allocator.device().transfer()?;
    let at = device.ptr().ok_or("the layer has bytes")?;
    let begun = Instant::now();
    // SAFETY: 1. 3. the stream and the memory are live. 4. The host memory stays until the stream was waited for.
    unsafe { transfer.download(host.ptr().as_ptr(), at, bytes, stream.handle()) }?;
    // SAFETY: as above.
    unsafe { transfer.upload(at, host.ptr().as_ptr(), bytes, stream.handle()) }?;
    stream.synchronize()?;
    Ok(begun.elapsed())
}
