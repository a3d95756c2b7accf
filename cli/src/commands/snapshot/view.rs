//! `cachette snapshot view`: a snapshot as a page.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use cachette::human::Bytes;
use cachette_snapshot::Snapshot;
use clap::Args;

use crate::commands::standard::{self, STDOUT};
use crate::error::CliError;
use crate::{output, stdout};

/// Draws a snapshot as a self-contained HTML page
#[derive(Debug, Args)]
pub(super) struct View {
    /// The snapshot; - is the standard input
    #[arg(value_name = "FILE", value_parser = standard::input())]
    file: PathBuf,
    /// The page; - is the standard output, and the default the snapshot's name with .html
    #[arg(short, long, value_name = "PAGE", value_parser = standard::output())]
    output: Option<PathBuf>,
}

impl View {
    pub(super) fn run(self) -> Result<(), CliError> {
        let snapshot = Snapshot::read(&self.file)?;
        // A stream has no name to add to.
        let beside = || self.file.is_file().then(|| beside(&self.file));
        let page = self.output.or_else(beside).unwrap_or_else(|| STDOUT.into());
        output::replace(&page, |file| cachette_viewer::page(&snapshot, file))?;
        if page.is_file() {
            let bytes = fs::metadata(&page).map_or(0, |found| found.len());
            stdout::print(|out| writeln!(out, "wrote {} ({})", page.display(), Bytes(bytes)))?;
        }
        Ok(())
    }
}

/// `run.pickle` as `run.pickle.html`.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".html");
    name.into()
}
