//! A graph whose memory is saved by one process and restored by another, at the same addresses.
//!
//! ```text
//! cargo run -p cachette --example graph_addresses -- save graph.addresses
//! cargo run -p cachette --example graph_addresses -- restore graph.addresses
//! ```
//!
//! That runs on host memory. On a GPU: `cargo run --release -p cachette --features cuda --example graph_addresses -- save
//! graph.addresses cuda:0`, and a number of blocks after it if the pool is to be larger.

use std::env;
use std::error::Error;
use std::time::Instant;

use cachette::addresses::Addresses;
use cachette::hal::{CaptureMode, DevicePtr};
use cachette::human::Bytes;
use cachette::pool::Graph;
use cachette::{Allocator, Backends, Pool, Stream};

const BLOCKS: u64 = 64;
const MIB: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (Some(task), Some(file)) = (arguments.first(), arguments.get(1)) else {
        return Err("name a task and a file: save FILE [DEVICE [BLOCKS]], or restore FILE [DEVICE]".into());
    };
    let allocator = Allocator::new(Backends::open(arguments.get(2).map_or("host", String::as_str))?);
    let stream = allocator.create_stream()?;
    match task.as_str() {
        "save" => {
            let count = arguments.get(3).map_or(Ok(BLOCKS), |count| count.parse())?;
            save(&allocator, &stream, file, count)
        }
        "restore" => restore(&allocator, &stream, file),
        other => Err(format!("{other} is no task; save or restore").into()),
    }
}

fn save(allocator: &Allocator, stream: &Stream, file: &str, count: u64) -> Result<(), Box<dyn Error>> {
    let pool = allocator.create_capture_pool();
    let sizes = (0..count).map(|nth| (1 + nth * 5 % 8) * MIB);
    let mut blocks = sizes.map(|bytes| pool.allocate(bytes, stream)).collect::<Result<Vec<_>, _>>()?;
    blocks.sort_unstable_by_key(cachette::Allocation::address);
    let saved = pool.save_addresses()?;
    let graph = capture(&pool, stream, &saved)?;
    run(allocator, &graph, stream, &saved, 1)?;
    saved.write_to(file)?;
    println!("{} blocks in {} segments of {} are saved", count, saved.segments().len(), Bytes(saved.bytes()));
    Ok(())
}

fn restore(allocator: &Allocator, stream: &Stream, file: &str) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    let saved = Addresses::read_from(file)?;
    let read = begun.elapsed();
    let (pool, blocks) = allocator.restore_addresses(&saved, stream)?;
    let restored = begun.elapsed();
    // A program that has saved the graph too builds it here without a capture. All addresses in it are right.
    let graph = capture(&pool, stream, &saved)?;
    run(allocator, &graph, stream, &saved, 2)?;
    println!(
        "{} blocks of {} are where they were: the file was read in {read:.2?}, and all was restored in {restored:.2?}",
        blocks.len(),
        Bytes(saved.bytes())
    );
    Ok(())
}

/// A graph that copies 1 MiB from each block to the next.
fn capture(pool: &Pool, stream: &Stream, saved: &Addresses) -> Result<Graph, Box<dyn Error>> {
    let transfer = pool.allocator().device().transfer()?;
    let capture = pool.begin_capture(stream, CaptureMode::ThreadLocal)?;
    for pair in saved.blocks().windows(2) {
        let (from, to) = (pointer(pair[0].address)?, pointer(pair[1].address)?);
        // SAFETY: 1. the stream lives. 3. the caller has allocated the blocks, and keeps them until the graph has run.
        unsafe { transfer.copy(to, from, MIB, stream.handle()) }?;
    }
    Ok(capture.end()?)
}

/// Fills the first block, launches the graph, and checks the last block.
fn run(
    allocator: &Allocator,
    graph: &Graph,
    stream: &Stream,
    saved: &Addresses,
    byte: u8,
) -> Result<(), Box<dyn Error>> {
    let transfer = allocator.device().transfer()?;
    let ends = saved.blocks().first().zip(saved.blocks().last());
    let (first, last) = ends.ok_or("the pool is empty")?;
    // SAFETY: 1. the stream lives. 3. the caller keeps the blocks until the graph has run.
    unsafe { transfer.fill(pointer(first.address)?, byte, MIB, stream.handle()) }?;
    // SAFETY: 1. the same. 2. there is one graph. 3. the stream is the allocator's.
    unsafe { graph.launch(stream) }?;
    let mut found = vec![0; usize::try_from(MIB)?];
    // SAFETY: 1. 3. the same. 4. `found` lives until the stream has been waited for.
    unsafe { transfer.download(found.as_mut_ptr(), pointer(last.address)?, found.len(), stream.handle()) }?;
    stream.synchronize()?;
    if found.iter().any(|found| *found != byte) {
        return Err("the graph has not copied what it should".into());
    }
    Ok(())
}

fn pointer(address: u64) -> Result<DevicePtr, Box<dyn Error>> {
    DevicePtr::new(address).ok_or_else(|| "an address is zero".into())
}
