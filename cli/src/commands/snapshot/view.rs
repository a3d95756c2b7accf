//! `cachette snapshot view`: a snapshot as a page.

use std::path::PathBuf;

use cachette_snapshot::Snapshot;
use clap::Args;

use crate::error::CliError;
use crate::output;

/// Draws a snapshot as a self-contained HTML page
#[derive(Debug, Args)]
pub(super) struct View {
    /// The snapshot
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The page
    #[arg(short, long, value_name = "PAGE")]
    output: PathBuf,
}

impl View {
    pub(super) fn run(self) -> Result<(), CliError> {
        let snapshot = Snapshot::read(&self.file)?;
        output::replace(&self.output, |file| cachette_viewer::page(&snapshot, file))
    }
}
