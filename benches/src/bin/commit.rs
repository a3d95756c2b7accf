//! How long a commit of growable memory takes: of new memory, of memory that moves from another allocation, and of the
//! same part again, which makes no driver call.

use std::error::Error;
use std::time::{Duration, Instant};

use cachette::{Allocator, Growable};
use cachette_hal::Ordinal;
use cachette_replay::target::Target;
use clap::Parser;

const MOST: u64 = 8 << 30;
const ROUNDS: usize = 21;
const SIZES: [(&str, u64); 3] = [("2 MiB", 2 << 20), ("64 MiB", 64 << 20), ("1 GiB", 1 << 30)];

/// Measures commits.
#[derive(Debug, Parser)]
struct Options {
    /// The backend: cuda, hip or host; if left out, the first that has a device.
    #[arg(long)]
    backend: Option<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let target = Target::open(Options::parse().backend.as_deref(), Ordinal(0), 4 * MOST)?;
    let allocator = Allocator::new(target.device.clone());
    let stream = allocator.create_stream()?;
    println!("{}, medians of {ROUNDS} rounds: commit | decommit", target.backend);
    for (name, bytes) in SIZES {
        let mut rows: [Vec<(Duration, Duration)>; 3] = Default::default();
        for _ in 0..ROUNDS {
            let [one, other] =
                [allocator.allocate_growable(MOST, &stream)?, allocator.allocate_growable(MOST, &stream)?];
            let [new, moved, again] = &mut rows;
            new.push(measure(&one, bytes)?);
            again.push(measure(&one, bytes)?);
            // The chunk of the first is idle, and the limit leaves no room for another.
            allocator.set_memory_limit(Some(allocator.reserved_bytes()));
            moved.push(measure(&other, bytes)?);
            allocator.set_memory_limit(None);
            drop((one, other));
            allocator.empty_cache()?;
        }
        for (kind, mut row) in ["new", "moved", "again"].into_iter().zip(rows) {
            row.sort();
            let decommit = row[ROUNDS / 2].1;
            println!("{name:8} {kind:6} {:>12.1?} | {decommit:>10.1?}", row[ROUNDS / 2].0);
        }
    }
    Ok(())
}

/// Commits the first bytes and takes them away again.
fn measure(memory: &Growable, bytes: u64) -> Result<(Duration, Duration), cachette::Error> {
    let begun = Instant::now();
    memory.commit(0..bytes)?;
    let (committed, begun) = (begun.elapsed(), Instant::now());
    memory.decommit(0..bytes)?;
    Ok((committed, begun.elapsed()))
}
