//! Runs the program on the first device, and prints the time of an allocation and its free.
//!
//! `cargo run --release -p cachette-candle`, and the same with `--features cachette`.

use std::error::Error;
use std::time::Instant;

use cachette_candle::Device;

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

    // Warm, so that the first growth of a cache is not in the figure.
    let mut times = Vec::new();
    for _ in 0..200 {
        let begun = Instant::now();
        for _ in 0..100 {
            drop(device.zeros(LEN as usize)?);
        }
        times.push(begun.elapsed().as_nanos() / 100);
        device.synchronize()?;
    }
    times.sort_unstable();
    let memory = if cfg!(feature = "cachette") { "Cachette" } else { "the driver" };
    println!("{ROUNDS} rounds are right; a tensor of zeros from {memory}: {} ns (median)", times[times.len() / 2]);
    Ok(())
}
