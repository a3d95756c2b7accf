//! Prints the memory held over the course of a trace as JSON, for `benches/plots/comparison`.
//!
//! `direct` is what PyTorch's allocator holds, and `pytorch_expandable` is a model of its expandable segments.

use std::error::Error;
use std::path::PathBuf;

use cachette::Config;
use cachette_benches::replay::{timeline, timeline_pytorch_expandable};
use cachette_benches::{Target, Trace};
use cachette_hal::Ordinal;
use clap::Parser;
use serde_json::json;

/// Phantom memory; more than any trace needs.
const PHANTOM: u64 = 1 << 40;

/// Prints the memory held over the course of a trace as JSON
#[derive(Parser)]
struct Options {
    /// The trace
    trace: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let trace = Trace::open(&Options::parse().trace)?;
    let target = Target::host(Ordinal(0), PHANTOM)?;
    let play = |text: &str| -> Result<_, Box<dyn Error>> {
        Ok(timeline(&trace, &target.device, &text.parse::<Config>()?, None))
    };
    let (direct, elastic) = (play("expandable_segments:False")?, play("expandable_segments:True")?);
    let found = json!({
        "trace": trace.name(),
        "step": direct.step,
        "requested": direct.requested,
        "direct": direct.reserved,
        "pytorch_expandable": timeline_pytorch_expandable(&trace),
        "elastic": elastic.reserved,
    });
    println!("{found}");
    Ok(())
}
