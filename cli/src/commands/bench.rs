//! `cachette bench`: how long an allocation takes.

use std::io::Write;
use std::path::PathBuf;

use cachette::human::Bytes;
use cachette_benches::suite::{Effort, Measurement, Workload};
use cachette_replay::Target;
use cachette_replay::table::Table;
use clap::Args;

use super::choice::Choice;
use super::progress;
use crate::error::CliError;
use crate::json::JsonFile;

/// Phantom memory of the host device; more than any row needs.
const PHANTOM: u64 = 1 << 40;
/// More threads would measure the operating system.
const MOST_THREADS: usize = 256;

/// Measures the nanoseconds of an allocation and a free
///
/// The backend host uses phantom memory, so the figures are those of the allocator alone. Exit code 1 if a row fails, 2
/// if the request is invalid.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    choice: Choice,
    /// The numbers of threads to measure
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_value = "1,2,4,8,16")]
    #[arg(value_parser = thread_count, allow_hyphen_values = true)]
    threads: Vec<usize>,
    /// Also measures 100,000 and 1,000,000 live blocks, which need 140 GB
    #[arg(long)]
    scale: bool,
    /// Runs everything briefly, without meaningful figures
    #[arg(long)]
    quick: bool,
    /// Also writes the results to this file; - prints them instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Bench {
    pub(super) fn run(self) -> Result<(), CliError> {
        let target = self.choice.open(PHANTOM)?;
        let file = JsonFile::create(self.json.as_deref())?;
        let rows = Workload::rows(&self.threads, self.scale);
        let effort = if self.quick { Effort::QUICK } else { Effort::FULL };
        let mut measured = Vec::new();
        let ended = measure(&target, &rows, effort, &mut measured);
        file.print(|out| {
            writeln!(out, "{}", device_line(&target))?;
            write!(out, "{}", table(&measured))
        })?;
        file.write(&measured)?;
        ended
    }
}

/// Measures the rows in order, until one fails.
fn measure(
    target: &Target,
    rows: &[Workload],
    effort: Effort,
    measured: &mut Vec<Measurement>,
) -> Result<(), CliError> {
    let bar = progress::bar(rows.len() as u64);
    for row in rows {
        bar.set_message(format!("{} {}", row.name(), row.parameter()));
        let result = row.measure(&target.device, effort);
        measured.push(result.map_err(|error| CliError::NotMeasured {
            workload: row.name(),
            parameter: row.parameter(),
            error,
        })?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// The machine and device, in one line.
pub(super) fn device_line(target: &Target) -> String {
    let (backend, info) = (&target.backend, target.device.info());
    let (ordinal, name) = (info.ordinal, &info.name);
    match target.phantom {
        Some(bytes) => format!("{backend}:{ordinal}  {name}, {} of phantom memory", Bytes(bytes)),
        None => format!("{backend}:{ordinal}  {name}"),
    }
}

fn table(measured: &[Measurement]) -> Table<3> {
    let mut table = Table::new(["workload", "parameter", "ns per pair"]);
    for row in measured {
        table.push([row.workload.to_owned(), row.parameter.clone(), format!("{:.1}", row.ns_per_pair)]);
    }
    table
}

/// Reads one number of `--threads`.
fn thread_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok();
    count
        .filter(|count| (1..=MOST_THREADS).contains(count))
        .ok_or_else(|| format!("a number of threads is a whole number from 1 to {MOST_THREADS}"))
}
