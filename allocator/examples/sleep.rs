//! Sleep and wake of a pool: speed beside plain copies, contents over many nights, and a graph; `sleep [BACKEND] [MIB]`.

use std::error::Error;
use std::time::{Duration, Instant};

use cachette::hal::owned::OwnedPinned;
use cachette::hal::{AnyDevice, CaptureMode, Device};
use cachette::sleep::Contents;
use cachette::{Allocation, Allocator, Backends, Pool, Stream};

type Result<T> = std::result::Result<T, Box<dyn Error>>;
type Memory = Allocation<AnyDevice>;

const NIGHTS: u32 = 100;
const PIECE: u64 = 64 << 20;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let backend = arguments.next();
    let mib: u64 = arguments.next().map_or(Ok(256), |text| text.parse())?;
    let device = Backends::open(backend.as_deref().unwrap_or("host"))?;
    let config = "expandable_segments:True".parse()?;
    let allocator = Allocator::with_config(device, &config);
    let stream = allocator.create_stream()?;
    speed(&allocator, &stream, mib << 20)?;
    nights(&allocator, &stream)?;
    graph(&allocator, &stream)
}

/// Bytes a second, in both directions, of plain copies between the device and page-locked memory.
fn copies(allocator: &Allocator<AnyDevice>) -> Result<(f64, f64)> {
    let device = allocator.device();
    let (transfer, stream) = (device.transfer()?, allocator.create_stream()?);
    let memory = allocator.allocate(1 << 30, &stream)?;
    let host = OwnedPinned::allocate(device, 1 << 30)?;
    let at = memory.ptr().ok_or("no memory")?;
    let rounds = 8;
    let mut times = [Duration::MAX; 2];
    for _ in 0..3 {
        let began = Instant::now();
        for _ in 0..rounds {
            // SAFETY: 1. the stream is live. 3. and 4. both stay until it has run dry.
            unsafe { transfer.download(host.ptr().as_ptr(), at, 1 << 30, stream.handle()) }?;
        }
        stream.synchronize()?;
        times[0] = times[0].min(began.elapsed());
        let began = Instant::now();
        for _ in 0..rounds {
            // SAFETY: as above.
            unsafe { transfer.upload(at, host.ptr().as_ptr(), 1 << 30, stream.handle()) }?;
        }
        stream.synchronize()?;
        times[1] = times[1].min(began.elapsed());
    }
    let speed = |time: Duration| f64::from(rounds) * f64::from(1 << 30) / time.as_secs_f64();
    Ok((speed(times[0]), speed(times[1])))
}

/// Lets a pool of `bytes` sleep and wake a few times, and compares with plain copies.
fn speed(allocator: &Allocator<AnyDevice>, stream: &Stream<AnyDevice>, bytes: u64) -> Result<()> {
    let (down, up) = copies(allocator)?;
    allocator.empty_cache()?;
    let pool = allocator.create_pool();
    let pieces: Vec<Memory> =
        (0..bytes / PIECE).map(|_| pool.allocate(PIECE, stream)).collect::<std::result::Result<_, _>>()?;
    for (byte, piece) in (0_u8..=u8::MAX).cycle().zip(&pieces) {
        fill(allocator, piece, byte, stream)?;
    }
    println!("plain copies: {:.1} GB/s to the host, {:.1} GB/s back", down / 1e9, up / 1e9);
    for night in 1..=4 {
        let free = allocator.device().memory_info()?.free;
        let began = Instant::now();
        let slept = pool.sleep(Contents::Keep)?;
        let sleep = began.elapsed().as_secs_f64();
        let gained = allocator.device().memory_info()?.free - free;
        let began = Instant::now();
        pool.wake()?;
        let wake = began.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let share = |time: f64, speed: f64| slept.saved as f64 / time / speed * 100.0;
        println!(
            "night {night}: {} MiB slept in {:.0} ms ({:.0} % of plain copies) and woke in {:.0} ms ({:.0} %); \
             the device had {} MiB more",
            slept.released >> 20,
            sleep * 1e3,
            share(sleep, down),
            wake * 1e3,
            share(wake, up),
            gained >> 20,
        );
    }
    for (byte, piece) in (0_u8..=u8::MAX).cycle().zip(&pieces).step_by(37) {
        check(allocator, piece, byte, stream)?;
    }
    println!("every piece that was looked at has its bytes");
    Ok(())
}

/// Lets a small pool sleep many times; nothing may grow and no byte may change.
fn nights(allocator: &Allocator<AnyDevice>, stream: &Stream<AnyDevice>) -> Result<()> {
    let pool = allocator.create_pool();
    let pieces = [3_u64 << 20, 700, 33 << 20].map(|bytes| pool.allocate(bytes, stream));
    let mut memory = Vec::new();
    for (byte, piece) in (1..).zip(pieces) {
        let piece = piece?;
        fill(allocator, &piece, byte, stream)?;
        memory.push(piece);
    }
    let mut held = Vec::new();
    for _ in 0..NIGHTS {
        pool.sleep(Contents::Keep)?;
        pool.wake()?;
        for (byte, piece) in (1..).zip(&memory) {
            check(allocator, piece, byte, stream)?;
        }
        held.push((pool.stats().reserved_bytes, allocator.device().memory_info()?.free));
    }
    let (first, last) = (held[0], held[held.len() - 1]);
    println!("{NIGHTS} nights: every byte as before; held and free {first:?} at first, {last:?} at last");
    if first.0 != last.0 || last.1 + (8 << 20) < first.1 {
        return Err("memory grew".into());
    }
    Ok(())
}

/// Captures a graph, lets its memory sleep, and launches it again.
fn graph(allocator: &Allocator<AnyDevice>, stream: &Stream<AnyDevice>) -> Result<()> {
    let pool: Pool<AnyDevice> = allocator.create_capture_pool();
    let transfer = allocator.device().transfer()?;
    let capture = pool.begin_capture(stream, CaptureMode::Global)?;
    let (input, output) = (allocator.allocate(4 << 20, stream)?, allocator.allocate(4 << 20, stream)?);
    let between = allocator.allocate(4 << 20, stream)?;
    let at = |memory: &Memory| memory.ptr().ok_or("no memory");
    // SAFETY: 1. the stream is live. 3. all are live, and the graph keeps the pool's memory.
    unsafe { transfer.copy(at(&between)?, at(&input)?, 4 << 20, stream.handle()) }?;
    // SAFETY: as above.
    unsafe { transfer.copy(at(&output)?, at(&between)?, 4 << 20, stream.handle()) }?;
    drop(between);
    let graph = capture.end()?;
    for byte in 1..=5 {
        fill(allocator, &input, byte, stream)?;
        pool.sleep(Contents::Keep)?;
        pool.wake()?;
        // SAFETY: 1. it names memory of its pool alone. 2. It runs alone. 3. The stream is this allocator's.
        unsafe { graph.launch(stream) }?;
        check(allocator, &output, byte, stream)?;
    }
    println!("a graph copied what it should after each of five nights");
    Ok(())
}

fn fill(allocator: &Allocator<AnyDevice>, memory: &Memory, byte: u8, stream: &Stream<AnyDevice>) -> Result<()> {
    let at = memory.ptr().ok_or("no memory")?;
    let transfer = allocator.device().transfer()?;
    // SAFETY: 1. the stream is live. 3. the memory is allocated.
    unsafe { transfer.fill(at, byte, memory.bytes(), stream.handle()) }?;
    Ok(())
}

fn check(allocator: &Allocator<AnyDevice>, memory: &Memory, byte: u8, stream: &Stream<AnyDevice>) -> Result<()> {
    let bytes = usize::try_from(memory.bytes())?;
    let mut read = vec![!byte; bytes];
    let from = memory.ptr().ok_or("no memory")?;
    let transfer = allocator.device().transfer()?;
    // SAFETY: 1. the stream is live. 3. the memory is allocated. 4. `read` is touched after the stream has run dry.
    unsafe { transfer.download(read.as_mut_ptr(), from, bytes, stream.handle()) }?;
    stream.synchronize()?;
    if read.iter().any(|other| *other != byte) {
        return Err(format!("memory filled with {byte} holds something else").into());
    }
    Ok(())
}
