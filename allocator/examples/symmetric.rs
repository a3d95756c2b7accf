//! Memory of a communication library: made, written, read back and freed, alone and through a pool.
//!
//! `cargo run --release -p cachette --features cuda --example symmetric -- nccl [library]`, or with `nvshmem`, needs an
//! NVIDIA device; with `host` the host's memory stands in for a library's. The library is the file given, or the one that `CACHETTE_NCCL_LIBRARY` or `CACHETTE_NVSHMEM_LIBRARY`
//! names, or the one that the system finds.

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use cachette::hal::owned::OwnedStream;
use cachette::hal::{AnyDevice, Device, DevicePtr, Ordinal, StreamRef, Vendor};
use cachette::source::{AllocContext, FunctionSource, Nccl, Nvshmem, NvshmemLibrary, Source, SourceError};
use cachette::{Allocator, Backends, PoolOptions};

const DEVICE: Ordinal = Ordinal(0);
/// Sizes of segments, as an allocator asks for them.
const SIZES: [u64; 3] = [2 << 20, 20 << 20, 64 << 20];
/// Sizes of what a pool is asked for.
const POOLED: [u64; 6] = [512, 40_000, 1 << 20, 3 << 20, 12 << 20, 40 << 20];

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (which, path) = (words.next(), words.next());
    let done = match which.as_deref() {
        Some("nccl") => nccl(path.as_deref()),
        Some("nvshmem") => nvshmem(path.as_deref()),
        Some("host") => host(),
        _ => Err("say nccl, nvshmem or host, and where its library is if the system does not find it".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn nccl(path: Option<&str>) -> Result<(), Box<dyn Error>> {
    let device = Backends::open("cuda:0")?;
    let source = match path {
        // SAFETY: 1. whoever starts the program says so.
        Some(path) => unsafe { Nccl::open(Vendor::Nvidia, path) }?,
        None => Nccl::load(Vendor::Nvidia)?,
    };
    let source = Arc::new(source);
    let bytes = exercise(&device, &*source)?;
    pooled(&device, source.clone())?;
    let version = source.version().map_or("unknown".into(), |number| number.to_string());
    println!("NCCL {version} ({}): {bytes} bytes made, written, read and freed", source.library());
    Ok(())
}

fn nvshmem(path: Option<&str>) -> Result<(), Box<dyn Error>> {
    let device = Backends::open("cuda:0")?;
    let source = match path {
        // SAFETY: 1. whoever starts the program says so.
        Some(path) => unsafe { NvshmemLibrary::open(path) }?.single(DEVICE)?,
        None => Nvshmem::single(DEVICE)?,
    };
    let source = Arc::new(source);
    let bytes = exercise(&device, &*source)?;
    pooled(&device, source.clone())?;
    let source = Arc::into_inner(source).ok_or("the pool kept its source")?;
    let (rank, ranks) = source.rank();
    let library = source.library().name().to_owned();
    // SAFETY: 1. everything was freed. 2. `single` made it.
    unsafe { source.close() }?;
    println!("NVSHMEM ({library}), rank {rank} of {ranks}: {bytes} bytes made, written, read and freed");
    Ok(())
}

fn host() -> Result<(), Box<dyn Error>> {
    let device = Backends::open("host")?;
    let (makes, frees) = (AnyDevice::clone(&device), AnyDevice::clone(&device));
    let allocate = move |bytes, _: &AllocContext| makes.allocate(bytes).map_err(as_source_error);
    let free = move |ptr, _, _: &AllocContext| {
        // SAFETY: 1. the line above made it. 2. The promise of who frees it.
        unsafe { frees.free(ptr) }.map_err(as_source_error)
    };
    // SAFETY: 1. 2. 3. the device's own memory has these properties.
    let source = unsafe { FunctionSource::new("the host's memory", allocate, free) };
    let source = Arc::new(source);
    let bytes = exercise(&device, &*source)?;
    pooled(&device, source)?;
    println!("host: {bytes} bytes made, written, read and freed");
    Ok(())
}

fn as_source_error(error: cachette::hal::Error) -> SourceError {
    SourceError::other(error.to_string(), error.recovery().advice())
}

/// A source that remembers what is live of it.
#[derive(Debug)]
struct Watched {
    source: Arc<dyn Source>,
    live: Mutex<BTreeMap<u64, u64>>,
}

impl Watched {
    fn live(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a range lies in something that is live.
    fn holds(&self, address: u64, bytes: u64) -> bool {
        let live = self.live();
        let segment = live.range(..=address).next_back();
        segment.is_some_and(|(start, length)| address + bytes <= start + length)
    }
}

// SAFETY: 1. 2. 3. the source inside keeps them.
unsafe impl Source for Watched {
    fn name(&self) -> &str {
        self.source.name()
    }

    unsafe fn allocate(&self, bytes: u64, place: &AllocContext) -> Result<DevicePtr, SourceError> {
        // SAFETY: 1. The caller's promise.
        let ptr = unsafe { self.source.allocate(bytes, place) }?;
        self.live().insert(ptr.address(), bytes);
        Ok(ptr)
    }

    unsafe fn free(&self, ptr: DevicePtr, bytes: u64, place: &AllocContext) -> Result<(), SourceError> {
        self.live().remove(&ptr.address());
        // SAFETY: 1. and 2. are the caller's promises.
        unsafe { self.source.free(ptr, bytes, place) }
    }

    fn alignment(&self) -> u64 {
        self.source.alignment()
    }
}

/// Lets a pool take its segments from the source: allocates from it, writes, reads back, frees, and empties it.
fn pooled(device: &AnyDevice, source: Arc<dyn Source>) -> Result<(), Box<dyn Error>> {
    let watched = Arc::new(Watched { source, live: Mutex::default() });
    let allocator = Allocator::new(AnyDevice::clone(device));
    let stream = allocator.create_stream()?;
    let options = PoolOptions::new().source(Arc::<Watched>::clone(&watched));
    let pool = allocator.create_pool_with(options)?;
    let begun = Instant::now();
    let mut memory = Vec::new();
    for bytes in POOLED {
        memory.push(pool.allocate(bytes, &stream)?);
    }
    let made = begun.elapsed();
    for (seed, memory) in (1..).zip(&memory) {
        let (at, bytes) = (memory.ptr().ok_or("no memory")?, memory.bytes());
        if !watched.holds(at.address(), bytes) {
            return Err(format!("{bytes} bytes at {at} are not of the source").into());
        }
        check(device, stream.handle(), at, bytes, seed)?;
    }
    let (held, segments) = (pool.stats(), watched.live().len() as u64);
    let of_source: u64 = watched.live().values().sum();
    if (held.segments, held.reserved_bytes) != (segments, of_source) {
        return Err(format!("the pool says {held:?}; {of_source} bytes are live").into());
    }
    drop(memory);
    let emptied = pool.empty_cache()?;
    let left = watched.live().len();
    if (emptied, left) != (of_source, 0) || pool.stats().reserved_bytes != 0 {
        return Err(format!("{left} segments were left in the pool").into());
    }
    println!(
        "{}: a pool cut {} allocations of {} bytes from {segments} segments of {of_source} bytes in {} us",
        watched.name(),
        held.allocations,
        held.allocated_bytes,
        made.as_micros()
    );
    Ok(())
}

/// Makes memory of every size at once, fills it, reads it back, and frees it; returns how much it was.
fn exercise(device: &AnyDevice, source: &dyn Source) -> Result<u64, Box<dyn Error>> {
    let stream = OwnedStream::create(AnyDevice::clone(device))?;
    let place = AllocContext::new(DEVICE, stream.get());
    let mut made = Vec::new();
    for bytes in SIZES {
        // SAFETY: 1. the stream is the device's own.
        let ptr = unsafe { source.allocate(bytes, &place) }?;
        println!("{} gave {bytes} bytes at {ptr}", source.name());
        made.push((ptr, bytes));
    }
    for (seed, &(ptr, bytes)) in (1..).zip(&made) {
        check(device, place.stream, ptr, bytes, seed)?;
    }
    for (ptr, bytes) in made {
        // SAFETY: 1. it was made above. 2. `check` has waited for the stream.
        unsafe { source.free(ptr, bytes, &place) }?;
    }
    Ok(SIZES.iter().sum())
}

/// Writes a pattern, fills the second half, and compares what comes back.
fn check(device: &AnyDevice, stream: StreamRef, at: DevicePtr, bytes: u64, seed: u8) -> Result<(), Box<dyn Error>> {
    let len = usize::try_from(bytes)?;
    let mut expected: Vec<u8> = (0..=250).map(|byte: u8| byte ^ seed).cycle().take(len).collect();
    let transfer = device.transfer()?;
    // SAFETY: 1. both are live. 3. the range is the whole allocation. 4. the stream is waited for below.
    unsafe { transfer.upload(at, expected.as_ptr(), len, stream) }?;
    // SAFETY: 1. it is live.
    unsafe { device.synchronize(stream) }?;
    // SAFETY: 1. both are live. 3. the second half of the allocation.
    unsafe { transfer.fill(at.add(bytes / 2), seed, bytes / 2, stream) }?;
    expected[len / 2..].fill(seed);
    let mut found = vec![0; len];
    // SAFETY: 1. both are live. 3. the range is the whole allocation. 4. the stream is waited for below.
    unsafe { transfer.download(found.as_mut_ptr(), at, len, stream) }?;
    // SAFETY: 1. it is live.
    unsafe { device.synchronize(stream) }?;
    if found != expected {
        return Err(format!("{bytes} bytes at {at} came back changed").into());
    }
    Ok(())
}
