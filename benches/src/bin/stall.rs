//! How long an allocator's calls take while the stream is busy for 100 ms.
//!
//! The stream is held by a host function. Each line says what was called, on which kind of segment, and the longest
//! it took in several rounds. Nothing on elastic segments may come near the 100 ms.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use cachette::{Allocator, Config, Stream};
use cachette_hal::{AnyDevice, Device, Ordinal};
use cachette_replay::target::Target;
use clap::Parser;

const MIB: u64 = 1 << 20;
const HOLD: Duration = Duration::from_millis(100);
const ROUNDS: usize = 5;

/// Measures whether anything waits for a busy stream.
#[derive(Debug, Parser)]
struct Options {
    /// The backend: cuda, hip or host; if left out, the first that has a device.
    #[arg(long)]
    backend: Option<String>,
}

/// What is called while the stream is busy, after what was done before.
#[derive(Clone, Copy)]
enum Step {
    /// An allocation of so many MiB.
    Allocate(u64),
    Release,
}

const STEPS: [(Step, &str); 4] = [
    (Step::Allocate(30), "allocate, a free block fits"),
    (Step::Allocate(400), "allocate, memory is obtained"),
    (Step::Allocate(70), "allocate, idle memory moves"),
    (Step::Release, "empty the cache"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let target = Target::open(options.backend.as_deref(), Ordinal(0), 64 << 30)?;
    println!("{}, the stream is busy for {HOLD:?}", target.backend);
    for (kind, config) in [("direct", "expandable_segments:False"), ("elastic", "expandable_segments:True")] {
        for (step, name) in STEPS {
            let mut longest = Duration::ZERO;
            for _ in 0..ROUNDS {
                longest = longest.max(measure(&target.device, &config.parse()?, step)?);
            }
            println!("{kind:8} {name:30} {longest:>12.1?}");
        }
    }
    Ok(())
}

/// Makes ready, holds the stream, and measures one call.
fn measure(device: &AnyDevice, config: &Config, step: Step) -> Result<Duration, Box<dyn Error>> {
    let allocator = Allocator::with_config(device.clone(), config);
    let stream = allocator.create_stream()?;
    // A block that stays, so that what is freed around it lies in several pieces.
    let before = allocator.allocate(40 * MIB, &stream)?;
    let between = allocator.allocate(2 * MIB, &stream)?;
    let after = allocator.allocate(40 * MIB, &stream)?;
    drop((before, after));
    hold(&allocator, &stream)?;
    let start = Instant::now();
    let got = match step {
        Step::Allocate(size) => Some(allocator.allocate(size * MIB, &stream)?),
        Step::Release => {
            allocator.empty_cache()?;
            None
        }
    };
    let took = start.elapsed();
    drop((got, between));
    stream.synchronize()?;
    Ok(took)
}

/// Keeps the stream busy.
fn hold(allocator: &Allocator, stream: &Stream) -> Result<(), Box<dyn Error>> {
    let calls = allocator.device().host_calls()?;
    // SAFETY: 1. the stream lives as long as the allocator.
    unsafe { calls.call_host(stream.handle(), Box::new(|| thread::sleep(HOLD))) }?;
    // Until the function has begun.
    thread::sleep(HOLD / 10);
    Ok(())
}
