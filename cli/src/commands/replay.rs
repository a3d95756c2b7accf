//! `cachette replay`: what a recorded program would have needed.

mod size;

use std::io::{self, Write};
use std::path::PathBuf;

use cachette::Config;
use cachette::human::Bytes;
use cachette_benches::replay::{Outcome, replay};
use cachette_benches::table::Table;
use cachette_benches::target::HOST;
use cachette_benches::{Target, Trace};
use clap::Args;
use serde::Serialize;

use super::bench::device_line;
use super::choice::Choice;
use super::progress;
use crate::error::CliError;
use crate::json::JsonFile;
use crate::stdout;

/// Phantom memory of the host device: as much as a large card has.
const PHANTOM: u64 = 141 << 30;

/// Replays what programs asked of their allocator, and shows the memory and the time it takes
///
/// A trace has one line an operation, `a ID SIZE STREAM` or `f ID`, and may be packed by gzip. Peaks and driver calls
/// are those of the first pass, through an empty allocator (cold); the same is then asked again (warm). Exit code 1 if
/// a replay runs out of memory, 2 if the request itself is wrong.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// The traces
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    choice: Choice,
    /// Uses the backend host with this much memory, such as 80G, none of which is touched [default: 141G]
    #[arg(long, value_name = "SIZE", value_parser = size::bytes, allow_hyphen_values = true)]
    phantom: Option<u64>,
    /// How the allocator behaves, as in `CACHETTE_ALLOC_CONF`; each use gives one more row a trace
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    config: Vec<Config>,
    /// Writes the results here too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One trace under one configuration.
#[derive(Debug, Serialize)]
struct Row {
    trace: String,
    backend: String,
    config: String,
    #[serde(flatten)]
    outcome: Outcome,
}

impl Replay {
    pub(super) fn run(mut self) -> Result<(), CliError> {
        let target = self.open()?;
        let traces = self.traces.iter().map(|path| Trace::open(path));
        let traces = traces.collect::<Result<Vec<_>, _>>()?;
        let file = self.json.as_deref().map(JsonFile::create).transpose()?;
        if self.config.is_empty() {
            self.config.push(Config::default());
        }
        let rows = replay_all(&target, &traces, &self.config);
        stdout::print(|out| write(out, &target, &rows))?;
        if let Some(file) = file {
            file.write(&rows)?;
        }
        judge(&rows)
    }

    fn open(&mut self) -> Result<Target, CliError> {
        if self.phantom.is_some() {
            let backend = self.choice.backend.get_or_insert_with(|| HOST.to_owned());
            if backend != HOST {
                let backend = backend.clone();
                return Err(CliError::PhantomElsewhere { backend });
            }
        }
        Ok(self.choice.open(self.phantom.unwrap_or(PHANTOM))?)
    }
}

fn replay_all(target: &Target, traces: &[Trace], configs: &[Config]) -> Vec<Row> {
    let operations: usize = traces.iter().map(|trace| trace.operations().len()).sum();
    let bar = progress::bar((2 * operations * configs.len()) as u64);
    let mut rows = Vec::new();
    for trace in traces {
        bar.set_message(trace.name().to_owned());
        for config in configs {
            let mut progress = |more: usize| bar.inc(more as u64);
            let outcome = replay(trace, &target.device, config, &mut progress);
            rows.push(Row {
                trace: trace.name().to_owned(),
                backend: target.backend.clone(),
                config: config_text(config),
                outcome,
            });
        }
    }
    bar.finish_and_clear();
    rows
}

/// What differs from the default, or that nothing does.
fn config_text(config: &Config) -> String {
    let text = config.to_string();
    if text.is_empty() {
        "default".to_owned()
    } else {
        text
    }
}

fn write(out: &mut impl Write, target: &Target, rows: &[Row]) -> io::Result<()> {
    writeln!(out, "{}", device_line(target))?;
    let mut table = Table::new([
        "trace",
        "config",
        "operations",
        "requested",
        "allocated",
        "reserved",
        "ratio",
        "cold ns/op",
        "warm ns/op",
        "driver calls",
    ]);
    for row in rows {
        table.push(cells(row));
    }
    write!(out, "{table}")?;
    for row in rows {
        if let Some(failure) = &row.outcome.error {
            writeln!(out, "{} with {}: {failure}", row.trace, row.config)?;
        }
    }
    Ok(())
}

fn cells(row: &Row) -> [String; 10] {
    let outcome = &row.outcome;
    let missing = match &outcome.error {
        Some(failure) if failure.is_out_of_memory() => "out of memory",
        Some(_) => "failed",
        None => "-",
    };
    let ns =
        |figure: Option<f64>| figure.map_or_else(|| missing.to_owned(), |ns| format!("{ns:.1}"));
    [
        row.trace.clone(),
        row.config.clone(),
        outcome.operations.to_string(),
        Bytes(outcome.peak_requested).to_string(),
        Bytes(outcome.peak_allocated).to_string(),
        Bytes(outcome.peak_reserved).to_string(),
        format!("{:.3}", outcome.ratio),
        ns(outcome.cold_ns_per_op),
        ns(outcome.warm_ns_per_op),
        outcome.driver_calls.to_string(),
    ]
}

fn judge(rows: &[Row]) -> Result<(), CliError> {
    let failed = rows
        .iter()
        .filter(|row| row.outcome.error.is_some())
        .count();
    if failed == 0 {
        return Ok(());
    }
    Err(CliError::ReplaysFailed {
        failed,
        total: rows.len(),
    })
}
