//! Measures captures on memory of pools: growth over many captures, the cost of entering, reuse between streams.

use std::collections::HashSet;
use std::error::Error;
use std::time::Instant;

use cachette::{Allocator, Backends, Stream};
use cachette_hal::owned::OwnedEvent;
use cachette_hal::{AnyDevice, CaptureMode, Device};
use clap::Parser;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const BYTES: usize = 3 << 20;
/// Buffers that two streams use in one graph.
const BUFFERS: u8 = 8;

/// Measures captures on memory of pools
#[derive(Debug, Parser)]
struct Arguments {
    /// The device, such as cuda:0
    #[arg(long, default_value = "host")]
    device: String,
    /// How many graphs are captured, each in a new pool
    #[arg(long, default_value_t = 1000)]
    captures: u32,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let device = Backends::open(&arguments.device)?;
    for (name, config) in [("direct", "expandable_segments:False"), ("elastic", "expandable_segments:True")] {
        let allocator = Allocator::with_config(device.clone(), &config.parse()?);
        let growth = growth(&allocator, arguments.captures)?;
        println!("{name}: {} captures left {growth} bytes more reserved than the first", arguments.captures);
        println!("{name}: entering and leaving a pool takes {:.1} ns", enter_ns(&allocator)?);
        let without = addresses_used(&allocator)?;
        allocator.set_config(&format!("graph_capture_record_stream_reuse:True,{config}").parse()?);
        let with = addresses_used(&allocator)?;
        println!("{name}: {BUFFERS} buffers of two streams used {with} addresses, and {without} without reuse");
        if (with, without) != (1, usize::from(BUFFERS)) {
            return Err("a buffer was reused too late or too early".into());
        }
    }
    Ok(())
}

/// Captures many graphs, each in a new pool; returns the growth of reserved memory since the first.
fn growth(allocator: &Allocator, captures: u32) -> Result<u64> {
    let stream = allocator.create_stream()?;
    let mut out = allocator.allocate_buffer::<u8>(BYTES, &stream)?;
    let mut first = None;
    for _ in 0..captures {
        let pool = allocator.create_capture_pool();
        let capture = pool.begin_capture(&stream, CaptureMode::Global)?;
        let mut scratch = allocator.allocate_buffer(BYTES, &stream)?;
        scratch.fill(1)?;
        out.copy_from(&scratch)?;
        drop(scratch);
        drop((capture.end()?, pool));
        first.get_or_insert(allocator.reserved_bytes());
    }
    Ok(allocator.reserved_bytes().saturating_sub(first.unwrap_or(0)))
}

/// Nanoseconds to enter and leave a pool.
fn enter_ns(allocator: &Allocator) -> Result<f64> {
    const TIMES: u32 = 200_000;
    let stream = allocator.create_stream()?;
    let pool = allocator.create_pool();
    let start = Instant::now();
    for _ in 0..TIMES {
        drop(pool.enter(&stream)?);
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(TIMES))
}

/// Captures two streams that fork and join around every buffer, and frees each buffer before the join.
///
/// Launches the graph three times, checks what every round wrote, and returns how many addresses the buffers had.
fn addresses_used(allocator: &Allocator) -> Result<usize> {
    let transfer = allocator.device().transfer()?;
    let (stream, side) = (allocator.create_stream()?, allocator.create_stream()?);
    let out = allocator.allocate_buffer::<u8>(BYTES * usize::from(BUFFERS), &stream)?;
    let out_ptr = out.ptr().ok_or("no memory")?;
    let pool = allocator.create_capture_pool();
    let capture = pool.begin_capture(&stream, CaptureMode::Global)?;
    let mut addresses = HashSet::new();
    for round in 0..BUFFERS {
        follow(allocator, &side, &stream)?;
        let scratch = allocator.allocate(BYTES as u64, &stream)?;
        addresses.insert(scratch.address());
        scratch.record_stream(&side);
        let from = scratch.ptr().ok_or("no memory")?;
        let to = out_ptr.add(BYTES as u64 * u64::from(round));
        // SAFETY: 1. The stream is live. 3. The memory is live, and the graph keeps the pool's memory.
        unsafe { transfer.fill(from, round + 1, BYTES as u64, side.handle()) }?;
        // SAFETY: as above, and `to` is this round's part of `out`.
        unsafe { transfer.copy(to, from, BYTES as u64, side.handle()) }?;
        drop(scratch);
        follow(allocator, &stream, &side)?;
    }
    let graph = capture.end()?;
    for _ in 0..3 {
        // SAFETY: 1. `out` is live until it is read. 2. The pool has one graph. 3. The stream is the allocator's.
        unsafe { graph.launch(&stream) }?;
        let written = out.read()?;
        let mut rounds = (1..=BUFFERS).zip(written.chunks(BYTES));
        if let Some((round, _)) = rounds.find(|(round, part)| part.iter().any(|found| found != round)) {
            return Err(format!("round {round} of two streams has other contents").into());
        }
    }
    Ok(addresses.len())
}

/// Makes later work in `stream` wait for the work in `other`.
fn follow(allocator: &Allocator, stream: &Stream, other: &Stream) -> Result<()> {
    let device = allocator.device();
    let event = OwnedEvent::create(AnyDevice::clone(device))?;
    // SAFETY: 1. Event and stream are live.
    unsafe { device.record(event.get(), other.handle()) }?;
    // SAFETY: 1. Event and stream are live.
    unsafe { device.stream_wait(stream.handle(), event.get()) }?;
    Ok(())
}
