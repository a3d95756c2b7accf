//! Graphs on memory of a pool: captured, launched, and their contents checked; `graphs [BACKEND]`.

use std::collections::HashSet;
use std::error::Error;
use std::time::Instant;

use cachette::hal::owned::OwnedEvent;
use cachette::hal::{AnyDevice, CaptureMode, Device};
use cachette::pool::Graph;
use cachette::{Allocation, Allocator, Backends, Pool, Stream};

type Result<T> = std::result::Result<T, Box<dyn Error>>;
type Memory = Allocation<AnyDevice>;

const BYTES: usize = 3 << 20;
const CAPTURES: u32 = 1000;
const ROUNDS: u8 = 8;
const REUSE: &str = "graph_capture_record_stream_reuse:True";

fn main() -> Result<()> {
    let backend = std::env::args().nth(1);
    let device = Backends::open(backend.as_deref().unwrap_or("host"))?;
    for config in ["", "expandable_segments:True"] {
        let allocator = Allocator::with_config(device.clone(), &config.parse()?);
        let stream = allocator.create_stream()?;
        let name = if config.is_empty() { "direct" } else { "elastic" };
        contents(&allocator, &stream)?;
        println!("{name}: a graph launched three times wrote what it should");
        let growth = many(&allocator, &stream)?;
        println!("{name}: {CAPTURES} captures left {growth} bytes more held than the first");
        println!("{name}: entering and leaving a pool takes {:.1} ns", entering(&allocator, &stream)?);
        let without = reuse(&allocator)?;
        allocator.set_config(&format!("{REUSE},{config}").parse()?);
        let with = reuse(&allocator)?;
        println!(
            "{name}: {ROUNDS} buffers of two streams in one graph took {with} places, and {without} without reuse"
        );
        if (with, without) != (1, usize::from(ROUNDS)) {
            return Err("a buffer was reused too late or too early".into());
        }
    }
    Ok(())
}

/// Captures a fill of one allocation and a copy into another, with memory made and freed inside the capture.
fn capture(pool: &Pool<AnyDevice>, stream: &Stream<AnyDevice>, byte: u8, out: &Memory) -> Result<Graph<AnyDevice>> {
    let allocator = pool.allocator();
    let transfer = allocator.device().transfer()?;
    let capture = pool.begin_capture(stream, CaptureMode::Global)?;
    let between = allocator.allocate(BYTES as u64, stream)?;
    let (from, to) = (between.ptr().ok_or("no memory")?, out.ptr().ok_or("no memory")?);
    // SAFETY: 1. the stream is live. 3. both are live, and the graph keeps the pool's memory.
    unsafe { transfer.fill(from, byte, BYTES as u64, stream.handle()) }?;
    // SAFETY: as above.
    unsafe { transfer.copy(to, from, BYTES as u64, stream.handle()) }?;
    drop(between);
    Ok(capture.end()?)
}

fn contents(allocator: &Allocator<AnyDevice>, stream: &Stream<AnyDevice>) -> Result<()> {
    let pool = allocator.create_capture_pool();
    let out = allocator.allocate(BYTES as u64, stream)?;
    let graphs = [capture(&pool, stream, 7, &out)?, capture(&pool, stream, 9, &out)?];
    let id = pool.id();
    drop(pool);
    for (graph, byte) in [(&graphs[0], 7_u8), (&graphs[1], 9), (&graphs[0], 7)] {
        // SAFETY: 1. `out` is live until the stream has finished. 2. one stream runs them in turn. 3. It is ours.
        unsafe { graph.launch(stream) }?;
        let seen = read(allocator, &out, BYTES, stream)?;
        if seen.iter().any(|found| *found != byte) {
            return Err(format!("a graph of pool {id} did not write {byte}").into());
        }
    }
    drop(graphs);
    if allocator.open_pool(id).is_ok() {
        return Err("the pool outlived its last graph".into());
    }
    Ok(())
}

/// Captures many graphs, each in a pool of its own; by how much more is held in the end than after the first.
fn many(allocator: &Allocator<AnyDevice>, stream: &Stream<AnyDevice>) -> Result<u64> {
    let out = allocator.allocate(BYTES as u64, stream)?;
    let mut first = 0;
    for round in 0..CAPTURES {
        let pool = allocator.create_capture_pool();
        let graph = capture(&pool, stream, 1, &out)?;
        drop((graph, pool));
        if round == 0 {
            first = allocator.reserved_bytes();
        }
    }
    Ok(allocator.reserved_bytes().saturating_sub(first))
}

fn entering(allocator: &Allocator<AnyDevice>, stream: &Stream<AnyDevice>) -> Result<f64> {
    const TIMES: u32 = 200_000;
    let pool = allocator.create_pool();
    let start = Instant::now();
    for _ in 0..TIMES {
        drop(pool.enter(stream)?);
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(TIMES))
}

/// Captures work of two streams that fork and join, each round with a buffer of its own that is freed before the
/// join; launches it twice, checks what every round wrote, and says how many places the buffers took.
fn reuse(allocator: &Allocator<AnyDevice>) -> Result<usize> {
    let transfer = allocator.device().transfer()?;
    let (stream, side) = (allocator.create_stream()?, allocator.create_stream()?);
    let out = allocator.allocate(BYTES as u64 * u64::from(ROUNDS), &stream)?;
    let pool = allocator.create_capture_pool();
    let capture = pool.begin_capture(&stream, CaptureMode::Global)?;
    let mut places = HashSet::new();
    for round in 0..ROUNDS {
        follow(allocator, &side, &stream)?;
        let between = allocator.allocate(BYTES as u64, &stream)?;
        places.insert(between.address());
        between.record_stream(&side);
        let from = between.ptr().ok_or("no memory")?;
        let to = out.ptr().ok_or("no memory")?;
        let to = to.add(BYTES as u64 * u64::from(round));
        // SAFETY: 1. the stream is live. 3. it is live, and the graph keeps the pool's memory.
        unsafe { transfer.fill(from, round + 1, BYTES as u64, side.handle()) }?;
        // SAFETY: as above, and `to` is the round's part of `out`.
        unsafe { transfer.copy(to, from, BYTES as u64, side.handle()) }?;
        drop(between);
        follow(allocator, &stream, &side)?;
    }
    let graph = capture.end()?;
    for _ in 0..2 {
        // SAFETY: 1. `out` is live until the stream has finished. 2. It is the only one. 3. It is ours.
        unsafe { graph.launch(&stream) }?;
        let seen = read(allocator, &out, BYTES * usize::from(ROUNDS), &stream)?;
        for (round, part) in (1..=ROUNDS).zip(seen.chunks(BYTES)) {
            if part.iter().any(|found| *found != round) {
                return Err(format!("round {round} of two streams did not write what it should").into());
            }
        }
    }
    Ok(places.len())
}

/// Makes later work of `stream` wait for what is in `other`.
fn follow(allocator: &Allocator<AnyDevice>, stream: &Stream<AnyDevice>, other: &Stream<AnyDevice>) -> Result<()> {
    let device = allocator.device();
    let event = OwnedEvent::create(AnyDevice::clone(device))?;
    // SAFETY: 1. both are live.
    unsafe { device.record(event.get(), other.handle()) }?;
    // SAFETY: 1. both are live.
    unsafe { device.stream_wait(stream.handle(), event.get()) }?;
    Ok(())
}

/// What the first `bytes` of `memory` hold when `stream` has finished.
fn read(
    allocator: &Allocator<AnyDevice>,
    memory: &Memory,
    bytes: usize,
    stream: &Stream<AnyDevice>,
) -> Result<Vec<u8>> {
    let mut seen = vec![0_u8; bytes];
    let from = memory.ptr().ok_or("no memory")?;
    let transfer = allocator.device().transfer()?;
    // SAFETY: 1. the stream is live. 3. 4. both outlive the synchronization below.
    unsafe { transfer.download(seen.as_mut_ptr(), from, seen.len(), stream.handle()) }?;
    stream.synchronize()?;
    Ok(seen)
}
