//! Prints what a history costs: nanoseconds an event, and milliseconds a snapshot.

use std::error::Error;
use std::io::{self, Write};
use std::time::Instant;

use cachette::history::{HistoryOptions, Level};
use cachette::snapshot::SnapshotOptions;
use cachette::{Allocator, Stream};
use cachette_benches::Target;
use cachette_benches::table::Table;
use cachette_hal::Ordinal;
use clap::Parser;

/// Phantom memory of the host device.
const CAPACITY: u64 = 16 << 40;
/// Events that a pair makes: it was allocated, it was freed, it is free.
const EVENTS: u32 = 3;
const BYTES: u64 = 1 << 10;

/// What a history costs, on a host device with phantom memory
#[derive(Debug, Parser)]
struct Arguments {
    /// Pairs of a measurement
    #[arg(long, default_value_t = 400_000)]
    pairs: u32,
    /// Blocks that are held when a snapshot is taken
    #[arg(long, default_value_t = 100_000)]
    blocks: u32,
    /// Events that a snapshot holds
    #[arg(long, default_value_t = 1_000_000)]
    events: u32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let mut out = io::stdout();
    write!(out, "{}", pairs(&arguments)?)?;
    writeln!(out)?;
    write!(out, "{}", snapshots(&arguments)?)?;
    Ok(())
}

fn allocator() -> Result<(Allocator, Stream), Box<dyn Error>> {
    let allocator = Allocator::new(Target::host(Ordinal(0), CAPACITY)?.device);
    let stream = allocator.create_stream()?;
    Ok((allocator, stream))
}

/// Nanoseconds a pair and an event, for several histories; each the best of five.
fn pairs(arguments: &Arguments) -> Result<Table<3>, Box<dyn Error>> {
    let events = HistoryOptions::new().stacks(false).max_entries(100_000);
    let callers = HistoryOptions::new().max_entries(100_000);
    let mut table = Table::new(["history", "ns a pair", "ns an event"]);
    let mut off = 0.0;
    for (name, options) in [
        ("off", None),
        ("events", Some(events)),
        ("callers of allocations", Some(callers.clone().level(Level::Alloc))),
        ("callers of everything", Some(callers)),
    ] {
        let (allocator, stream) = allocator()?;
        let recorded = options.is_some();
        if let Some(options) = options {
            allocator.record_history(options);
        }
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let begin = Instant::now();
            for _ in 0..arguments.pairs {
                drop(allocator.allocate(BYTES, &stream)?);
            }
            let ns = begin.elapsed().as_secs_f64() * 1e9;
            best = best.min(ns / f64::from(arguments.pairs));
        }
        let event = if recorded {
            format!("{:.1}", (best - off) / f64::from(EVENTS))
        } else {
            off = best;
            "-".to_owned()
        };
        table.push([name.to_owned(), format!("{best:.1}"), event]);
    }
    Ok(table)
}

/// Milliseconds a snapshot, with and without its events; each the best of five.
fn snapshots(arguments: &Arguments) -> Result<Table<4>, Box<dyn Error>> {
    let (allocator, stream) = allocator()?;
    let most = u64::from(arguments.events);
    allocator.record_history(HistoryOptions::new().stacks(false).max_entries(most));
    let blocks = (0..arguments.blocks).map(|_| allocator.allocate(BYTES, &stream));
    let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
    for _ in 0..=arguments.events / EVENTS {
        drop(allocator.allocate(BYTES, &stream)?);
    }
    let mut table = Table::new(["snapshot", "blocks", "events", "ms"]);
    for (name, traces) in [("of blocks", false), ("of blocks and events", true)] {
        let options = SnapshotOptions::new().traces(traces);
        let (mut best, mut held, mut happened) = (f64::INFINITY, 0, 0);
        for _ in 0..5 {
            let begin = Instant::now();
            let snapshot = allocator.snapshot_with(options);
            best = best.min(begin.elapsed().as_secs_f64() * 1e3);
            held = snapshot.segments.iter().map(|s| s.blocks.len()).sum();
            happened = snapshot.traces.iter().map(|t| t.events.len()).sum();
        }
        table.push([name.to_owned(), held.to_string(), happened.to_string(), format!("{best:.1}")]);
    }
    drop(blocks);
    Ok(table)
}
