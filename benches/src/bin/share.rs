//! How long a second process takes to open shared memory: `share [BACKEND] [MIB]`.
//!
//! Each process checks what the other wrote.

use std::error::Error;
use std::io::{Read, Write, stdin};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use cachette::{Allocator, Backends};
use cachette_hal::{AnyDevice, Device, DevicePtr, StreamRef};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Names the device to the second process.
const SECOND: &str = "CACHETTE_SHARE_SECOND";
/// The prefix of its result; drivers may write other lines.
const RESULT: &str = "second: ";
/// How often the memory is opened.
const ROUNDS: u32 = 10;
/// Bytes of one copy.
const PIECE: usize = 64 << 20;

fn main() -> ExitCode {
    let result = match std::env::var(SECOND) {
        Ok(backend) => import(&backend),
        Err(_) => export(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("share: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Shares memory of both kinds with a second process.
fn export() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let backend = arguments.next().unwrap_or_else(|| "host".to_owned());
    let mib: u64 = arguments.next().map_or(Ok(64), |text| text.parse())?;
    println!("{mib} MiB on {}", Backends::open(&backend)?.info().name);
    share(&backend, mib << 20, "in one piece", "expandable_segments:False")?;
    share(&backend, mib << 20, "in chunks", "expandable_segments:True")
}

fn share(backend: &str, bytes: u64, what: &str, config: &str) -> Result<()> {
    let allocator = Allocator::with_config(Backends::open(backend)?, &config.parse()?);
    let stream = allocator.create_stream()?;
    // A neighbour, so that the shared memory does not begin with its segment.
    let _neighbour = allocator.allocate(3 << 20, &stream)?;
    let memory = allocator.allocate(bytes, &stream)?;
    // The block may be larger than requested, and the importer sees all of it.
    let bytes = memory.bytes();
    put(allocator.device(), memory.address(), bytes, 1)?;
    let began = Instant::now();
    let shared = allocator.share(&memory)?;
    let sharing = began.elapsed();
    let times = measure(backend, &shared.handle())?;
    let times: Vec<u64> = times.split(' ').map(str::parse).collect::<std::result::Result<_, _>>()?;
    let [first, best, close] = times[..] else { return Err("the second process printed something else".into()) };
    check(allocator.device(), memory.address(), bytes, 2)?;
    let time = |nanos| Duration::from_nanos(nanos);
    println!(
        "{what}: {} chunks, handle of {} bytes; shared in {sharing:.1?}; opened at first in {:.2?}, then in {:.2?} \
         at best of {ROUNDS}, closed in {:.2?}; both processes saw what the other wrote",
        shared.chunks(),
        shared.handle().len(),
        time(first),
        time(best),
        time(close),
    );
    Ok(())
}

/// Opens the memory several times, checks its content, writes another, and prints the times.
fn import(backend: &str) -> Result<()> {
    let allocator = Allocator::new(Backends::open(backend)?);
    let mut handle = Vec::new();
    stdin().read_to_end(&mut handle)?;
    let mut opening = Vec::new();
    let mut closing = Duration::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let imported = allocator.open_shared(&handle)?;
        opening.push(began.elapsed());
        let began = Instant::now();
        drop(imported);
        closing = closing.min(began.elapsed());
    }
    let imported = allocator.open_shared(&handle)?;
    check(allocator.device(), imported.address(), imported.bytes(), 1)?;
    put(allocator.device(), imported.address(), imported.bytes(), 2)?;
    drop(imported);
    let best = opening.iter().min().copied().unwrap_or_default();
    let first = opening.first().copied().unwrap_or_default();
    println!("\n{RESULT}{} {} {}", first.as_nanos(), best.as_nanos(), closing.as_nanos());
    Ok(())
}

/// Runs the second process on a handle; the times that it prints.
fn measure(backend: &str, handle: &[u8]) -> Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.env(SECOND, backend).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("no pipe")?.write_all(handle)?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err("the second process failed".into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let result = text.lines().find_map(|line| line.strip_prefix(RESULT));
    Ok(result.ok_or("the second process printed nothing")?.to_owned())
}

/// Bytes that depend on the seed and on their offset.
fn pattern(seed: u64, at: u64, length: usize) -> Vec<u8> {
    let words = (at / 8..).take(length.div_ceil(8));
    let mut bytes: Vec<u8> = words
        .flat_map(|word| (word.wrapping_add(seed << 48)).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes())
        .collect();
    bytes.truncate(length);
    bytes
}

/// Offsets and lengths of the pieces of `bytes`.
fn pieces(bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    let piece = PIECE as u64;
    (0..bytes.div_ceil(piece)).map(move |index| {
        let left = usize::try_from(bytes - index * piece).unwrap_or(PIECE);
        (index * piece, left.min(PIECE))
    })
}

fn put(device: &AnyDevice, address: u64, bytes: u64, seed: u64) -> Result<()> {
    let transfer = device.transfer()?;
    for (offset, length) in pieces(bytes) {
        let content = pattern(seed, offset, length);
        let at = DevicePtr::new(address + offset).ok_or("no memory")?;
        // SAFETY: 1. the default stream always exists. 3. the memory is live. 4. `content` outlives the wait below.
        unsafe { transfer.upload(at, content.as_ptr(), length, StreamRef::DEFAULT) }?;
        device.synchronize_device()?;
    }
    Ok(())
}

fn check(device: &AnyDevice, address: u64, bytes: u64, seed: u64) -> Result<()> {
    let transfer = device.transfer()?;
    for (offset, length) in pieces(bytes) {
        let mut read = vec![0; length];
        let from = DevicePtr::new(address + offset).ok_or("no memory")?;
        // SAFETY: 1. the default stream always exists. 3. the memory is live. 4. `read` is used after the wait below.
        unsafe { transfer.download(read.as_mut_ptr(), from, length, StreamRef::DEFAULT) }?;
        device.synchronize_device()?;
        if read != pattern(seed, offset, length) {
            return Err(format!("the bytes from {offset} on are not what was written").into());
        }
    }
    Ok(())
}
