//! Measures how fast a pool sleeps and wakes beside plain copies, and repeats it to find growth or changed bytes.

use std::error::Error;
use std::time::{Duration, Instant};

use cachette::sleep::Contents;
use cachette::{Allocator, Backends, Buffer, Pool, Stream};
use cachette_hal::owned::OwnedPinned;
use cachette_hal::{CaptureMode, Device};
use clap::Parser;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const MIB: usize = 1 << 20;
/// Bytes of each buffer in the pool, and of each plain copy.
const PIECE: usize = 64 * MIB;

/// Measures sleep and wake of a pool
#[derive(Debug, Parser)]
struct Arguments {
    /// The device, such as cuda:0
    #[arg(long, default_value = "host")]
    device: String,
    /// Memory of the pool in MiB
    #[arg(long, default_value_t = 256)]
    mib: usize,
    /// How often a small pool sleeps and wakes afterwards
    #[arg(long, default_value_t = 100)]
    cycles: u32,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let config = "expandable_segments:True".parse()?;
    let allocator = Allocator::with_config(Backends::open(&arguments.device)?, &config);
    let stream = allocator.create_stream()?;
    speed(&allocator, &stream, arguments.mib * MIB)?;
    cycles(&allocator, &stream, arguments.cycles)?;
    graph(&allocator, &stream)
}

/// Prints the times of four sleeps and wakes of `bytes`, and checks the contents.
fn speed(allocator: &Allocator, stream: &Stream, bytes: usize) -> Result<()> {
    let (down, up) = copies(allocator, stream)?;
    println!("plain copies: {:.1} GB/s to the host, {:.1} GB/s back", down / 1e9, up / 1e9);
    allocator.empty_cache()?;
    let pool = allocator.create_pool();
    let pieces = filled(allocator, &pool, stream, &vec![PIECE; bytes.div_ceil(PIECE)])?;
    for round in 1..=4 {
        let before = allocator.device().memory_info()?.free;
        let begin = Instant::now();
        let slept = pool.sleep(Contents::Keep)?;
        let sleep = begin.elapsed().as_secs_f64();
        let gained = allocator.device().memory_info()?.free.saturating_sub(before);
        let begin = Instant::now();
        pool.wake()?;
        let wake = begin.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let share = |time: f64, speed: f64| slept.saved as f64 / time / speed * 100.0;
        println!(
            "round {round}: {} MiB slept in {:.0} ms ({:.0} % of plain copies) and woke in {:.0} ms ({:.0} %); \
             the device gained {} MiB",
            slept.released >> 20,
            sleep * 1e3,
            share(sleep, down),
            wake * 1e3,
            share(wake, up),
            gained >> 20,
        );
    }
    check(&pieces)
}

/// Lets a small pool sleep and wake `times` times; fails if memory grows or a byte changes.
fn cycles(allocator: &Allocator, stream: &Stream, times: u32) -> Result<()> {
    let pool = allocator.create_pool();
    let pieces = filled(allocator, &pool, stream, &[3 * MIB, 700, 33 * MIB])?;
    let mut held = Vec::new();
    for _ in 0..times {
        pool.sleep(Contents::Keep)?;
        pool.wake()?;
        check(&pieces)?;
        held.push((pool.stats().reserved_bytes, allocator.device().memory_info()?.free));
    }
    if let (Some(first), Some(last)) = (held.first(), held.last()) {
        println!("{times} cycles: contents unchanged; (reserved, free) {first:?} at first, {last:?} at last");
        if first.0 != last.0 || last.1 + (8 << 20) < first.1 {
            return Err("memory grew".into());
        }
    }
    Ok(())
}

/// Captures a graph, and launches it each time after its pool has slept.
fn graph(allocator: &Allocator, stream: &Stream) -> Result<()> {
    const TIMES: u8 = 5;
    let pool = allocator.create_capture_pool();
    let capture = pool.begin_capture(stream, CaptureMode::Global)?;
    let mut input = allocator.allocate_buffer::<u8>(4 * MIB, stream)?;
    let mut output = allocator.allocate_buffer::<u8>(4 * MIB, stream)?;
    let mut scratch = allocator.allocate_buffer::<u8>(4 * MIB, stream)?;
    scratch.copy_from(&input)?;
    output.copy_from(&scratch)?;
    drop(scratch);
    let graph = capture.end()?;
    for byte in 1..=TIMES {
        input.fill(byte)?;
        pool.sleep(Contents::Keep)?;
        pool.wake()?;
        // SAFETY: 1. The graph uses memory of its pool only. 2. The pool has one graph. 3. The stream is the allocator's.
        unsafe { graph.launch(stream) }?;
        if output.read()?.iter().any(|found| *found != byte) {
            return Err("a graph wrote other contents after a sleep".into());
        }
    }
    println!("a graph copied its input after each of {TIMES} sleeps");
    Ok(())
}

/// Buffers of these sizes in the pool; each has a different byte.
fn filled(allocator: &Allocator, pool: &Pool, stream: &Stream, sizes: &[usize]) -> Result<Vec<(u8, Buffer<u8>)>> {
    let _inside = pool.enter(stream)?;
    let fill = |(byte, bytes): (u8, &usize)| {
        let mut buffer = allocator.allocate_buffer::<u8>(*bytes, stream)?;
        buffer.fill(byte)?;
        Ok((byte, buffer))
    };
    (1..=u8::MAX).cycle().zip(sizes).map(fill).collect()
}

/// Reads every buffer and compares its bytes.
fn check(pieces: &[(u8, Buffer<u8>)]) -> Result<()> {
    for (byte, buffer) in pieces {
        if buffer.read()?.iter().any(|found| found != byte) {
            return Err(format!("a buffer filled with {byte} has other contents").into());
        }
    }
    Ok(())
}

/// Bytes per second of plain copies from and to the device, the best of three.
fn copies(allocator: &Allocator, stream: &Stream) -> Result<(f64, f64)> {
    const ROUNDS: u32 = 32;
    let transfer = allocator.device().transfer()?;
    let memory = allocator.allocate(PIECE as u64, stream)?;
    let host = OwnedPinned::allocate(allocator.device(), PIECE)?;
    let at = memory.ptr().ok_or("no memory")?;
    let mut times = [Duration::MAX; 2];
    for _ in 0..3 {
        for (upload, best) in [false, true].into_iter().zip(&mut times) {
            let begin = Instant::now();
            for _ in 0..ROUNDS {
                let page = host.ptr().as_ptr();
                if upload {
                    // SAFETY: 1. The stream is live. 3 and 4. Both ranges stay until the stream has finished, below.
                    unsafe { transfer.upload(at, page, PIECE, stream.handle()) }?;
                } else {
                    // SAFETY: as above.
                    unsafe { transfer.download(page, at, PIECE, stream.handle()) }?;
                }
            }
            stream.synchronize()?;
            *best = (*best).min(begin.elapsed());
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let speed = |time: Duration| f64::from(ROUNDS) * PIECE as f64 / time.as_secs_f64();
    Ok((speed(times[0]), speed(times[1])))
}
