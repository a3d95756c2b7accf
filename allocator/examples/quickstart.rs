//! A first look: typed memory, a second stream, and the statistics of the cache.
//!
//! `cargo run -p cachette --example quickstart` runs on host memory. On a GPU:
//! `cargo run -p cachette --features cuda --example quickstart -- cuda:0`.

use std::error::Error;

use cachette::human::Bytes;
use cachette::{Allocator, Backends};

fn main() -> Result<(), Box<dyn Error>> {
    let target = std::env::args().nth(1).unwrap_or_else(|| "host".to_owned());
    let allocator = Allocator::new(Backends::open(&target)?);
    println!("device: {}", allocator.device_info().name);

    // Memory belongs to a stream: work queued in that stream can use it at once.
    let stream = allocator.create_stream()?;
    let input: Vec<f32> = (0_u16..1000).map(f32::from).collect();
    let mut numbers = allocator.allocate_buffer::<f32>(input.len(), &stream)?;
    numbers.write(&input)?;

    // The copy in another stream waits on the device for the write, and the fill waits for the copy.
    let side = allocator.create_stream()?;
    let mut copy = allocator.allocate_buffer(input.len(), &side)?;
    copy.copy_from(&numbers)?;
    numbers.fill(0)?;
    assert_eq!(copy.read()?, input);
    println!("{} numbers were copied to the device and back", input.len());

    // The cache keeps dropped memory: only the first iteration of a loop calls the driver.
    drop((numbers, copy));
    let before = allocator.stats().num_device_alloc;
    for _round in 0..10_000 {
        let _activations = allocator.allocate(24 << 20, &stream)?;
        let _workspace = allocator.allocate(100 << 10, &stream)?;
    }
    let asked = allocator.stats().num_device_alloc - before;
    println!("20000 requests, {asked} driver allocations");

    println!("\n{}\n", allocator.stats());
    println!("the cache returns {} to the device", Bytes(allocator.empty_cache()?));
    Ok(())
}
