//! How much pinned memory is held for the requests of recorded programs, beside PyTorch's powers of two.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use cachette::human::Bytes;
use cachette::{Allocator, PinnedAllocation};
use cachette_benches::instructions::exit_code;
use cachette_hal::{AnyDevice, Ordinal};
use cachette_hal_host::{HostBackend, HostConfig};
use cachette_replay::Trace;
use cachette_replay::table::Table;
use cachette_replay::trace::Operation;
use clap::Parser;

/// The most that may be held for each byte that was requested.
const MOST: f64 = 1.05;

/// Replays the requests of traces as requests of pinned memory on the host device
///
/// Exit code 1 if --check finds that more is held than 1.05 times the requested bytes.
#[derive(Debug, Parser)]
struct Arguments {
    /// Traces, packed by gzip or not
    #[arg(required = true)]
    traces: Vec<PathBuf>,
    /// Fails if a trace needs more than 1.05 times its requested bytes
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    exit_code(report(&Arguments::parse()))
}

fn report(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let mut table = Table::new(["trace", "requested", "held", "ratio", "segments", "powers of two", "ratio"]);
    let mut holds = true;
    for path in &arguments.traces {
        let trace = Trace::open(path)?;
        let requested = trace.peak_requested();
        let (held, segments) = held(&trace)?;
        let rounded = held_in_powers_of_two(&trace);
        #[expect(clippy::cast_precision_loss, reason = "the bytes are far below 2^53")]
        let ratio = |held: u64| held as f64 / requested as f64;
        holds &= ratio(held) <= MOST;
        table.push([
            trace.name().to_owned(),
            Bytes(requested).to_string(),
            Bytes(held).to_string(),
            format!("{:.3}", ratio(held)),
            segments.to_string(),
            Bytes(rounded).to_string(),
            format!("{:.3}", ratio(rounded)),
        ]);
    }
    write!(io::stdout(), "{table}")?;
    Ok(!arguments.check || holds)
}

/// The most bytes that the allocator holds during a trace, and the calls of the driver for them.
fn held(trace: &Trace) -> Result<(u64, u64), Box<dyn Error>> {
    let device = HostBackend::new(HostConfig::default())?.device(Ordinal(0))?;
    let allocator = Allocator::new(Arc::new(device) as AnyDevice);
    let mut live: HashMap<u32, PinnedAllocation> = HashMap::new();
    for operation in trace.operations() {
        match *operation {
            Operation::Allocate { slot, bytes, .. } => drop(live.insert(slot, allocator.pinned().allocate(bytes)?)),
            Operation::Free { slot } => drop(live.remove(&slot)),
        }
    }
    let stats = allocator.pinned().stats();
    Ok((stats.allocated_bytes.peak, stats.num_host_alloc))
}

/// What a cache holds that rounds requests up to powers of two, and never splits a block, as PyTorch's does.
fn held_in_powers_of_two(trace: &Trace) -> u64 {
    let (mut live, mut free, mut held) = (HashMap::new(), HashMap::<u64, u64>::new(), 0);
    for operation in trace.operations() {
        match *operation {
            Operation::Allocate { slot, bytes, .. } => {
                let block = bytes.next_power_of_two();
                live.insert(slot, block);
                match free.entry(block).or_default() {
                    0 => held += block,
                    blocks => *blocks -= 1,
                }
            }
            Operation::Free { slot } => {
                if let Some(block) = live.remove(&slot) {
                    *free.entry(block).or_default() += 1;
                }
            }
        }
    }
    held
}
