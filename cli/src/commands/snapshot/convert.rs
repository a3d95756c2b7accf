//! `cachette snapshot convert`: converts between formats.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use cachette_snapshot::Snapshot;
use clap::Args;

use crate::error::CliError;
use crate::output;

/// Converts a snapshot to the format of the new file's extension
///
/// JSON keeps everything. PyTorch's memory viewer reads pickles, which lose only unused table entries.
#[derive(Debug, Args)]
pub(super) struct Convert {
    /// The snapshot
    #[arg(value_name = "IN")]
    from: PathBuf,
    /// The new file, with the extension .json or .pickle
    #[arg(value_name = "OUT")]
    to: PathBuf,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Format {
    Json,
    Pickle,
}

impl Convert {
    pub(super) fn run(self) -> Result<(), CliError> {
        let format = format_of(&self.to)?;
        let snapshot = Snapshot::read(&self.from)?;
        output::replace(&self.to, |file| match format {
            Format::Json => snapshot.write_json(file),
            Format::Pickle => snapshot.write_pickle(file),
        })
    }
}

pub(super) fn format_of(path: &Path) -> Result<Format, CliError> {
    match path.extension().and_then(OsStr::to_str) {
        Some("json") => Ok(Format::Json),
        Some("pickle" | "pkl") => Ok(Format::Pickle),
        _ => Err(CliError::SnapshotEnding { path: path.to_owned() }),
    }
}
