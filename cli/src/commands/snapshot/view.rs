//! `cachette snapshot view`: a snapshot as a page.

use std::path::PathBuf;

use cachette_snapshot::Snapshot;
use clap::Args;

use crate::commands::standard;
use crate::error::CliError;
use crate::output;

/// Draws a snapshot as a self-contained HTML page
#[derive(Debug, Args)]
pub(super) struct View {
    /// The snapshot; - is the standard input
    #[arg(value_name = "FILE", value_parser = standard::input())]
    file: PathBuf,
    /// The page; - is the standard output
    #[arg(short, long, value_name = "PAGE", value_parser = standard::output())]
    output: PathBuf,
}

impl View {
    pub(super) fn run(self) -> Result<(), CliError> {
        let snapshot = Snapshot::read(&self.file)?;
        output::replace(&self.output, |file| cachette_viewer::page(&snapshot, file))
    }
}
