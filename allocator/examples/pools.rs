//! Private pools: memory that is kept apart from all other requests.
//!
//! `cargo run -p cachette --example pools` runs on host memory. On a GPU:
//! `cargo run -p cachette --features cuda --example pools -- cuda:0`.

use std::error::Error;

use cachette::human::Bytes;
use cachette::pool::Filter;
use cachette::{Allocator, Backends, PoolOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let target = std::env::args().nth(1).unwrap_or_else(|| "host".to_owned());
    let allocator = Allocator::new(Backends::open(&target)?);
    let stream = allocator.create_stream()?;

    // A request can name its pool.
    let pool = allocator.create_pool();
    let direct = pool.allocate(3 << 20, &stream)?;

    // Or this thread enters the pool, for requests on one stream.
    let entered = {
        let _inside = pool.enter(&stream)?;
        allocator.allocate(5 << 20, &stream)?
    };
    let default = allocator.allocate(5 << 20, &stream)?;
    println!("pool {}: {} allocated", pool.id(), Bytes(pool.stats().allocated_bytes));
    println!("all pools: {} allocated", Bytes(allocator.allocated_bytes()));

    // Or requests of all threads are routed to the pool until the route ends.
    allocator.begin_allocate_to_pool(pool.id(), Filter::Stream(stream.handle()))?;
    let routed = allocator.allocate(1 << 20, &stream)?;
    allocator.end_allocate_to_pool(pool.id())?;
    println!("pool {}: {} allocated", pool.id(), Bytes(pool.stats().allocated_bytes));

    // Every allocation returns to the pool it came from, wherever it is dropped.
    drop((direct, entered, default, routed));
    println!("pool {}: {} reserved, all of it free", pool.id(), Bytes(pool.stats().reserved_bytes));

    // A pool can help the default pool out before a request fails with out-of-memory.
    let helper = allocator.create_pool_with(PoolOptions::new().use_on_oom(true))?;
    drop(helper.allocate(8 << 20, &stream)?);

    // A pool without users returns its unused segments to the device at once.
    let before = allocator.reserved_bytes();
    drop(pool);
    println!("dropping the pool returned {}", Bytes(before - allocator.reserved_bytes()));
    Ok(())
}
