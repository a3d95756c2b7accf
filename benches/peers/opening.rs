//! What Cachette needs before memory can be asked for: one fresh process, one line.
//!
//! It prints `cachette,opening,allocator,NANOSECONDS`: from the start of `main` until the driver is loaded, the
//! device open and an allocator made. `opening_bench.cpp` does what no one can do without.

use std::env;
use std::error::Error;
use std::time::Instant;

use cachette::{Allocator, Backends};

fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let target = env::args().nth(1);
    let device = Backends::open(target.as_deref().unwrap_or("cuda:0"))?;
    let allocator = Allocator::new(device);
    let took = start.elapsed();
    println!("cachette,opening,allocator,{}", took.as_nanos());
    drop(allocator);
    Ok(())
}
