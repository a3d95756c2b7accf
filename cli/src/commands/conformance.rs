//! `cachette conformance`: whether a backend keeps every promise of the contract.

pub(super) mod target;

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use cachette_conformance::{Filter, Fixture, Options, Report, cases, child, run_with};
use cachette_hal::Ordinal;
use clap::{Args, ValueEnum};

use super::choice::ordinal;
use crate::error::CliError;
use crate::stdout;

/// Runs the conformance suite against one device
///
/// It prints the cases that fail and the totals, or every case with --verbose. Exit code 1 if a case fails, 2 if the
/// request is invalid.
#[derive(Debug, Args)]
pub(crate) struct Conformance {
    /// The backend to test: cuda, hip or host; if left out, the first that has a device
    #[arg(long)]
    backend: Option<String>,
    /// The device to test
    #[arg(long, value_name = "N", default_value = "0", value_parser = ordinal)]
    #[arg(allow_hyphen_values = true)]
    device: Ordinal,
    /// Runs only cases whose name contains this text; `group::` selects a group, `*` matches anything
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    filter: Option<String>,
    /// Runs each group of cases in a child process, so that a driver which crashes or hangs fails one case only
    #[arg(long)]
    isolate: bool,
    /// Prints every case, when it ends
    #[arg(long, short)]
    verbose: bool,
    /// The format of the report
    #[arg(long, value_enum, default_value_t)]
    format: ReportFormat,
    /// Writes the report to this file, and its text form to the standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ReportFormat {
    #[default]
    Text,
    Json,
    Junit,
}

impl Conformance {
    pub(super) fn run(self) -> Result<(), CliError> {
        let fixture = Arc::new(target::find(self.backend.as_deref(), self.device)?);
        // This comes before the file is created: a child has the same arguments and must not write it.
        child::play_if_child(&fixture);
        if let Some(filter) = &self.filter {
            Filter::parse(filter)?.select(cases())?;
        }
        let file = self.output.as_deref().map(create).transpose()?;
        let options = Options {
            filter: self.filter,
            threads: thread::available_parallelism().map_or(1, usize::from),
            isolate: self.isolate,
            ..Options::default()
        };
        let in_text = file.is_some() || matches!(self.format, ReportFormat::Text);
        let report = if in_text {
            run_in_text(&fixture, &options, self.verbose)?
        } else {
            cachette_conformance::run(&fixture, &options)?
        };
        match file {
            None if in_text => {}
            None => stdout::print(|out| write(out, &report, self.format))?,
            Some(mut file) => write(&mut file, &report, self.format)?,
        }
        judge(&report)
    }
}

/// Runs the cases and prints each outcome at once, so that it is known even if the driver ends the process. Outcomes that
/// are no failures are printed if `verbose`.
fn run_in_text(fixture: &Arc<Fixture>, options: &Options, verbose: bool) -> Result<Report, CliError> {
    let mut is_first = true;
    let mut printed = Ok(());
    let report = run_with(fixture, options, |header, case| {
        if printed.is_ok() {
            printed = stdout::print(|out| {
                if mem::take(&mut is_first) {
                    writeln!(out, "{header}")?;
                }
                if verbose || case.outcome.is_failure() { writeln!(out, "{case}") } else { Ok(()) }
            });
        }
    })?;
    printed?;
    stdout::print(|out| writeln!(out, "{}", report.totals))?;
    Ok(report)
}

fn create(path: &Path) -> Result<File, CliError> {
    File::create(path).map_err(|error| CliError::OutputFile { path: path.to_owned(), error })
}

fn write(out: &mut impl Write, report: &Report, format: ReportFormat) -> io::Result<()> {
    match format {
        ReportFormat::Text => writeln!(out, "{report}"),
        ReportFormat::Json => writeln!(out, "{}", report.to_json()),
        ReportFormat::Junit => write!(out, "{}", report.to_junit()),
    }
}

fn judge(report: &Report) -> Result<(), CliError> {
    if report.is_success() {
        return Ok(());
    }
    Err(CliError::CasesFailed { failed: report.failures().count(), total: report.cases.len() })
}
