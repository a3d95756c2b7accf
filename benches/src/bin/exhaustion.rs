//! How long the first out-of-memory errors of a process take: without a history, then with more and more stacks.
//!
//! Each line says how many blocks are live and how many stacks they have, how long the failing request took, and then
//! the text of its error. The text counts and names the stacks. `exhaustion host` measures another backend than the first
//! that has a device.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use cachette::history::HistoryOptions;
use cachette::{Allocation, Allocator, Stream};
use cachette_hal::{Device, Ordinal};
use cachette_replay::target::Target;

const BLOCK: u64 = 64 << 10;
/// Without a limit the request fails in the driver, and with one before it is asked.
const CONFIGS: [&str; 2] = ["", "memory_limit:1G"];

fn main() -> Result<(), Box<dyn Error>> {
    let target = Target::open(std::env::args().nth(1).as_deref(), Ordinal(0), 64 << 30)?;
    let total = target.device.memory_info()?.total;
    let cases = [(1, 0), (1, 1), (1000, 1000), (10_000, 1000), (10_000, 10_000)];
    for (config, (blocks, stacks)) in CONFIGS.iter().flat_map(|config| cases.map(|case| (config, case))) {
        let allocator = Allocator::with_config(target.device.clone(), &config.parse()?);
        if stacks > 0 {
            allocator.record_history(HistoryOptions::new());
        }
        let stream = allocator.create_stream()?;
        let held = (0..blocks).map(|block| nested(&allocator, &stream, block % stacks.max(1) + stacks));
        let _held: Vec<Allocation> = held.collect::<Result<_, _>>()?;
        let began = Instant::now();
        let Err(error) = allocator.allocate(total, &stream) else { return Err("there is no such memory".into()) };
        let request = began.elapsed();
        let began = Instant::now();
        let lines = error.to_string().lines().count();
        let text = began.elapsed();
        println!("{config:15} {blocks:5} blocks, {stacks:5} stacks: {request:>9.1?}, {lines} lines {text:>9.1?}");
    }
    Ok(())
}

/// Allocates with a stack that differs for each `path`: a frame of one of two kinds for each of its bits.
#[inline(never)]
fn nested(allocator: &Allocator, stream: &Stream, path: u32) -> Result<Allocation, cachette::Error> {
    if path == 0 {
        return allocator.allocate(BLOCK, stream);
    }
    if path.is_multiple_of(2) {
        let allocated = nested(allocator, stream, path / 2);
        black_box(0);
        allocated
    } else {
        let allocated = nested(allocator, stream, path / 2);
        black_box(1);
        allocated
    }
}
