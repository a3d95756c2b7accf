//! Shares memory with a second process, which changes it.
//!
//! `cargo run -p cachette --example share` runs on host memory. On a GPU:
//! `cargo run -p cachette --features cuda --example share -- cuda:0`.

use std::error::Error;
use std::io::{Read, Write, stdin};
use std::process::{Command, Stdio};

use cachette::hal::{AnyDevice, Device, DevicePtr, StreamRef};
use cachette::{Allocator, Backends};

/// Names the device to the second process.
const IMPORTER: &str = "CACHETTE_EXAMPLE_IMPORTER";

fn main() -> Result<(), Box<dyn Error>> {
    if let Ok(target) = std::env::var(IMPORTER) {
        return import(&target);
    }
    let target = std::env::args().nth(1).unwrap_or_else(|| "host".to_owned());
    let allocator = Allocator::new(Backends::open(&target)?);
    let stream = allocator.create_stream()?;
    let memory = allocator.allocate(4 << 20, &stream)?;
    write(allocator.device(), memory.ptr(), b"from the exporter")?;

    // The handle is a secret, so it travels through a pipe and not on the command line.
    let shared = allocator.share(&memory)?;
    let mut importer = Command::new(std::env::current_exe()?).env(IMPORTER, &target).stdin(Stdio::piped()).spawn()?;
    importer.stdin.take().ok_or("no pipe")?.write_all(&shared.handle())?;
    if !importer.wait()?.success() {
        return Err("the importer failed".into());
    }
    println!("the exporter reads: {}", read(allocator.device(), memory.ptr(), 17)?);
    Ok(())
}

fn import(target: &str) -> Result<(), Box<dyn Error>> {
    let allocator = Allocator::new(Backends::open(target)?);
    let mut handle = Vec::new();
    stdin().read_to_end(&mut handle)?;
    let memory = allocator.open_shared(&handle)?;
    println!("the importer reads: {}", read(allocator.device(), memory.ptr(), 17)?);
    write(allocator.device(), memory.ptr(), b"from the importer")
}

fn write(device: &AnyDevice, at: Option<DevicePtr>, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let at = at.ok_or("no memory")?;
    // SAFETY: 1. the default stream always exists. 3. the memory is live. 4. `bytes` outlives the wait below.
    unsafe { device.transfer()?.upload(at, bytes.as_ptr(), bytes.len(), StreamRef::DEFAULT) }?;
    Ok(device.synchronize_device()?)
}

fn read(device: &AnyDevice, at: Option<DevicePtr>, length: usize) -> Result<String, Box<dyn Error>> {
    let (at, mut bytes) = (at.ok_or("no memory")?, vec![0; length]);
    // SAFETY: 1. the default stream always exists. 3. the memory is live. 4. `bytes` is read after the wait below.
    unsafe { device.transfer()?.download(bytes.as_mut_ptr(), at, length, StreamRef::DEFAULT) }?;
    device.synchronize_device()?;
    Ok(String::from_utf8(bytes)?)
}
