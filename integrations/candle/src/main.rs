//! Runs the program on the first device, and prints the median times of an allocation and its free.
//!
//! `cargo run --release -p cachette-candle`, and the same with `--features cachette`.

use std::error::Error;
use std::time::Instant;

use cachette_candle::Device;
use cudarc::driver::DriverError;

const ROUNDS: u32 = 2_000;
const LEN: u32 = 1 << 16;

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::new(0)?;
    let first: Vec<u32> = (0..LEN).collect();
    let mut tensor = device.tensor(&first)?;
    for _ in 0..ROUNDS {
        tensor = tensor.rotated(&device)?;
    }
    let places = (ROUNDS % LEN) as usize;
    let mut expected = first;
    expected.rotate_right(places);
    if tensor.to_vec(&device)? != expected {
        return Err("the elements are wrong".into());
    }

    let len = LEN as usize;
    println!(
        "{ROUNDS} rounds are right; memory from {}",
        if cfg!(feature = "cachette") { "Cachette" } else { "the driver" }
    );
    println!("the driver's two calls: {} ns", median(&device, || device.raw_pair(4 * len))?);
    println!("a tensor, with cudarc's events: {} ns", median(&device, || device.pair(len))?);
    // SAFETY: 1. The program has one stream.
    unsafe { device.disable_event_tracking() };
    println!("a tensor, without them: {} ns", median(&device, || device.pair(len))?);
    Ok(())
}

/// The median time of an allocation and its free, in batches, in nanoseconds.
fn median(device: &Device, pair: impl Fn() -> Result<(), DriverError>) -> Result<u128, DriverError> {
    let mut times = Vec::new();
    for _ in 0..201 {
        let begun = Instant::now();
        for _ in 0..200 {
            pair()?;
        }
        times.push(begun.elapsed().as_nanos() / 200);
        device.synchronize()?;
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
