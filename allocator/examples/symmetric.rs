//! Memory of a communication library: made, written, read back and freed.
//!
//! `cargo run --release -p cachette --features cuda --example symmetric -- nccl [library]`, or with `nvshmem`, needs an
//! NVIDIA device. The library is the file given, or the one that `CACHETTE_NCCL_LIBRARY` or `CACHETTE_NVSHMEM_LIBRARY`
//! names, or the one that the system finds.

use std::error::Error;
use std::process::ExitCode;

use cachette::Backends;
use cachette::hal::owned::OwnedStream;
use cachette::hal::{AnyDevice, Device, DevicePtr, Ordinal, StreamRef, Vendor};
use cachette::source::{Nccl, Nvshmem, NvshmemLibrary, Place, Source};

const DEVICE: Ordinal = Ordinal(0);
/// Sizes of segments, as an allocator asks for them.
const SIZES: [u64; 3] = [2 << 20, 20 << 20, 64 << 20];

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (which, path) = (words.next(), words.next());
    let done = match which.as_deref() {
        Some("nccl") => nccl(path.as_deref()),
        Some("nvshmem") => nvshmem(path.as_deref()),
        _ => Err(
            "say nccl or nvshmem, and where its library is if the system does not find it".into(),
        ),
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
    let bytes = exercise(&device, &source)?;
    let version = source
        .version()
        .map_or("unknown".into(), |number| number.to_string());
    println!(
        "NCCL {version} ({}): {bytes} bytes made, written, read and freed",
        source.library()
    );
    Ok(())
}

fn nvshmem(path: Option<&str>) -> Result<(), Box<dyn Error>> {
    let device = Backends::open("cuda:0")?;
    let source = match path {
        // SAFETY: 1. whoever starts the program says so.
        Some(path) => unsafe { NvshmemLibrary::open(path) }?.single(DEVICE)?,
        None => Nvshmem::single(DEVICE)?,
    };
    let bytes = exercise(&device, &source)?;
    let (rank, ranks) = source.rank();
    let library = source.library().name().to_owned();
    // SAFETY: 1. everything was freed. 2. `single` made it.
    unsafe { source.close() }?;
    println!(
        "NVSHMEM ({library}), rank {rank} of {ranks}: {bytes} bytes made, written, read and freed"
    );
    Ok(())
}

/// Makes memory of every size at once, fills it, reads it back, and frees it; returns how much it was.
fn exercise(device: &AnyDevice, source: &dyn Source) -> Result<u64, Box<dyn Error>> {
    let stream = OwnedStream::create(AnyDevice::clone(device))?;
    let place = Place::new(DEVICE, stream.get());
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
fn check(
    device: &AnyDevice,
    stream: StreamRef,
    at: DevicePtr,
    bytes: u64,
    seed: u8,
) -> Result<(), Box<dyn Error>> {
    let len = usize::try_from(bytes)?;
    let mut expected: Vec<u8> = (0..=250)
        .map(|byte: u8| byte ^ seed)
        .cycle()
        .take(len)
        .collect();
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
