//! A pool that gives its memory back to the device and later restores it at the same addresses.
//!
//! `cargo run -p cachette --example sleep` runs on host memory. On a GPU:
//! `cargo run -p cachette --features cuda --example sleep -- cuda:0`.

use std::error::Error;

use cachette::human::Bytes;
use cachette::sleep::Contents;
use cachette::{Allocator, Backends, PoolOptions};

const LEN: usize = 16 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let target = std::env::args().nth(1).unwrap_or_else(|| "host".to_owned());
    // Only elastic segments, the default, can sleep: they keep addresses and physical memory apart.
    let allocator = Allocator::new(Backends::open(&target)?);
    let stream = allocator.create_stream()?;

    let weights = allocator.create_pool_with(PoolOptions::new().tag("weights"))?;
    let cache = allocator.create_pool_with(PoolOptions::new().tag("cache"))?;
    let mut layer = {
        let _inside = weights.enter(&stream)?;
        allocator.allocate_buffer::<f32>(LEN, &stream)?
    };
    layer.write(&vec![0.5; LEN])?;
    let tokens = cache.allocate(256 << 20, &stream)?;
    println!("before: {} reserved", Bytes(allocator.reserved_bytes()));

    // The weights are copied to page-locked host memory. The contents of the cache are not needed.
    let slept = allocator.sleep_tagged("weights", Contents::Keep)?;
    allocator.sleep_tagged("cache", Contents::Discard)?;
    println!("asleep: {} reserved, {} saved on the host", Bytes(allocator.reserved_bytes()), Bytes(slept.saved));

    // … another phase uses the whole device …

    let address = tokens.address();
    allocator.wake_tagged("weights")?;
    allocator.wake_tagged("cache")?;
    assert_eq!(layer.read()?, vec![0.5; LEN]);
    assert_eq!(tokens.address(), address);
    println!("awake: {} reserved, at the same addresses", Bytes(allocator.reserved_bytes()));
    Ok(())
}
