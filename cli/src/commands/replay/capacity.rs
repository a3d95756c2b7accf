//! Whether a run fits on a device of a given size, in words.

use std::io::{self, Write};

use cachette::Config;
use cachette::human::Bytes;
use cachette_replay::replay::{Fit, fit, fit_pytorch_expandable};
use cachette_replay::{Target, Trace};
use serde::Serialize;

use crate::commands::progress;
use crate::error::CliError;

/// The allocators that are compared, and their configurations; the model of PyTorch's expandable segments has none.
const ALLOCATORS: [(&str, Option<&str>); 3] = [
    ("PyTorch's allocator", Some("expandable_segments:False")),
    ("PyTorch's expandable segments", None),
    (CACHETTE, Some("")),
];
const CACHETTE: &str = "Cachette";

/// Whether one run fits with one allocator.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    pub(super) trace: String,
    pub(super) allocator: &'static str,
    pub(super) device_size: u64,
    pub(super) peak_requested: u64,
    /// The smallest device that is enough; `None` if it is larger than any that was tried.
    pub(super) needed: Option<u64>,
    pub(super) fits: bool,
}

/// Asks every allocator about every run.
pub(super) fn ask_all(target: &Target, traces: &[Trace], device_size: u64) -> Result<Vec<Answer>, CliError> {
    let bar = progress::bar((traces.len() * ALLOCATORS.len()) as u64);
    let mut answers = Vec::new();
    for trace in traces {
        for (allocator, config) in ALLOCATORS {
            bar.set_message(format!("{} with {allocator}", trace.name()));
            let found = match config {
                Some(text) => fit(trace, &target.device, &text.parse::<Config>()?),
                None => fit_pytorch_expandable(trace),
            };
            answers.push(Answer::of(trace, allocator, device_size, &found)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(answers)
}

impl Answer {
    fn of(trace: &Trace, allocator: &'static str, device_size: u64, found: &Fit) -> Result<Self, CliError> {
        if let Some(failure) = found.error.as_ref().filter(|failure| !failure.is_out_of_memory()) {
            return Err(CliError::NotReplayed { trace: trace.name().to_owned(), why: failure.to_string() });
        }
        Ok(Self {
            trace: trace.name().to_owned(),
            allocator,
            device_size,
            peak_requested: found.peak_requested,
            needed: found.fit_bytes,
            fits: found.fit_bytes.is_some_and(|needed| needed <= device_size),
        })
    }

    /// The answer as a line.
    fn words(&self) -> String {
        let (allocator, size) = (self.allocator, self.device_size);
        match self.needed {
            Some(needed) if self.fits => {
                format!("fits with {allocator}: needs {}, {} to spare", Bytes(needed), Bytes(size - needed))
            }
            Some(needed) => {
                format!("does not fit with {allocator}: lacks {}", Bytes(needed - size))
            }
            None => format!("does not fit with {allocator}, nor in four times as much"),
        }
    }
}

/// Writes a paragraph for each run.
pub(super) fn write(out: &mut dyn Write, answers: &[Answer]) -> io::Result<()> {
    for run in answers.chunks(ALLOCATORS.len()) {
        let Some(first) = run.first() else { continue };
        let (requested, size) = (Bytes(first.peak_requested), Bytes(first.device_size));
        writeln!(out, "{} requests {requested} at its peak.\nOn a device of {size} it", first.trace)?;
        for answer in run {
            writeln!(out, "  {}", answer.words())?;
        }
    }
    Ok(())
}

/// Returns an error if a run does not fit with Cachette.
pub(super) fn judge(answers: &[Answer]) -> Result<(), CliError> {
    let with_cachette = answers.iter().filter(|answer| answer.allocator == CACHETTE);
    let total = with_cachette.clone().count();
    match with_cachette.filter(|answer| !answer.fits).count() {
        0 => Ok(()),
        lacking => Err(CliError::DoesNotFit { lacking, total }),
    }
}
