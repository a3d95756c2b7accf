//! Results, one for each trace and configuration.

use std::io::{self, Write};

use cachette::Config;
use cachette_replay::replay::{Failure, Fit, Outcome};
use cachette_replay::{Target, Trace};
use indicatif::ProgressBar;
use serde::Serialize;

use super::named::Named;
use crate::commands::progress;
use crate::error::CliError;

/// The result of one trace with one configuration.
#[derive(Debug, Serialize)]
pub(super) struct Row<T> {
    pub(super) trace: String,
    pub(super) backend: String,
    /// The name of the configuration in `--compare`; absent if it is from the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<&'static str>,
    pub(super) config: String,
    /// The highest bytes that the recorded program held; absent if the trace does not contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recorded_peak_reserved: Option<u64>,
    /// The bytes that it holds less than direct segments; absent unless both were replayed to be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) saved_bytes: Option<i64>,
    #[serde(flatten)]
    pub(super) found: T,
}

impl<T> Row<T> {
    /// The results of `run` for every trace with every configuration. It advances the bar, which has `steps` steps.
    pub(super) fn of_each(
        target: &Target,
        traces: &[Trace],
        configs: &[Named],
        steps: usize,
        run: impl Fn(&Trace, &Config, &ProgressBar) -> T,
    ) -> Vec<Self> {
        let bar = progress::bar(steps as u64);
        let mut rows = Vec::new();
        for trace in traces {
            bar.set_message(trace.name().to_owned());
            rows.extend(configs.iter().map(|named| Self::new(target, trace, named, run(trace, &named.config, &bar))));
        }
        bar.finish_and_clear();
        rows
    }

    fn new(target: &Target, trace: &Trace, named: &Named, found: T) -> Self {
        Self {
            trace: trace.name().to_owned(),
            backend: target.backend.clone(),
            name: named.name,
            config: named.text(),
            recorded_peak_reserved: trace.recorded().map(|recorded| recorded.peak_reserved),
            saved_bytes: None,
            found,
        }
    }

    /// Returns the name of the configuration in a table.
    pub(super) fn label(&self) -> &str {
        self.name.unwrap_or(&self.config)
    }
}

/// A result that can end early.
pub(super) trait Found: Serialize {
    fn failure(&self) -> Option<&Failure>;
}

impl Found for Outcome {
    fn failure(&self) -> Option<&Failure> {
        self.error.as_ref()
    }
}

impl Found for Fit {
    fn failure(&self) -> Option<&Failure> {
        self.error.as_ref()
    }
}

/// Returns the text in place of a missing figure.
pub(super) fn missing(found: &impl Found) -> &'static str {
    match found.failure() {
        Some(failure) if failure.is_out_of_memory() => "out of memory",
        Some(_) => "failed",
        None => "-",
    }
}

/// Writes why rows ended early.
pub(super) fn write_failures<T: Found>(out: &mut dyn Write, rows: &[Row<T>]) -> io::Result<()> {
    for row in rows {
        if let Some(failure) = row.found.failure() {
            writeln!(out, "{} with {}: {failure}", row.trace, row.label())?;
        }
    }
    Ok(())
}

/// Returns an error if a row ended early.
pub(super) fn judge<T: Found>(rows: &[Row<T>]) -> Result<(), CliError> {
    let failed = rows.iter().filter(|row| row.found.failure().is_some()).count();
    if failed == 0 {
        return Ok(());
    }
    Err(CliError::ReplaysFailed { failed, total: rows.len() })
}
