//! `cachette doctor`: whether this machine is ready, and what to do where it is not.

mod devices;
mod finding;
mod pytorch;
mod settings;
mod system;

use std::env;
use std::io::Write;

use clap::Args;
use serde::Serialize;

use self::finding::{Finding, Status};
use super::devices::listing::Listing;
use crate::error::CliError;
use crate::json::write_to;
use crate::stdout;

/// Says whether this machine is ready for Cachette, and what to do where it is not
///
/// It looks for drivers, devices and their features, runs the conformance suite on one device, and asks Python which
/// mode PyTorch would get. Nothing is changed. Exit code 1 if something is broken; what is only absent is a note.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Prints the findings as JSON
    #[arg(long)]
    json: bool,
    /// The Python whose PyTorch is examined; by default `CACHETTE_PYTHON`, or python3
    #[arg(long, value_name = "PROGRAM")]
    python: Option<String>,
}

/// All findings, as JSON.
#[derive(Debug, Serialize)]
struct Diagnosis {
    ready: bool,
    summary: String,
    findings: Vec<Finding>,
}

impl Doctor {
    pub(super) fn run(self) -> Result<(), CliError> {
        let listing = Listing::gather();
        let python = self.python.or_else(|| env::var("CACHETTE_PYTHON").ok()).unwrap_or_else(|| "python3".to_owned());
        // First of all: a process that the suite starts has the same arguments, and must find its part here.
        let conformance = devices::conformance(&listing)?;
        let mut findings = devices::findings(&listing);
        findings.extend(settings::findings());
        findings.push(conformance);
        findings.extend(pytorch::findings(&python));
        findings.extend(system::findings());
        let broken: Vec<_> = findings
            .iter()
            .filter(|finding| finding.status == Status::Broken)
            .map(|finding| finding.topic.clone())
            .collect();
        let summary = summary(&devices::usable(&listing), &broken);
        stdout::print(|out| {
            if self.json {
                let all = Diagnosis { ready: broken.is_empty(), summary, findings };
                return write_to(out, &all);
            }
            for finding in &findings {
                write!(out, "{finding}")?;
            }
            writeln!(out, "\n{summary}")
        })?;
        if broken.is_empty() { Ok(()) } else { Err(CliError::NotReady { broken: broken.join(", ") }) }
    }
}

fn summary(devices: &[String], broken: &[String]) -> String {
    match (devices, broken) {
        ([], []) => "ready with host memory; there is no GPU that Cachette can use".to_owned(),
        (devices, []) => format!("ready with {}", devices.join(", ")),
        (_, broken) => format!("not ready: {}", broken.join(", ")),
    }
}
