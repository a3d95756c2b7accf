//! `cachette snapshot convert`: the same in another format.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use cachette_snapshot::Snapshot;
use clap::Args;

use crate::error::CliError;
use crate::output;

/// Writes a snapshot in the format that the ending of the new file names
///
/// JSON keeps everything. A pickle is what PyTorch's memory viewer reads; it keeps all but tables that nothing names.
#[derive(Debug, Args)]
pub(super) struct Convert {
    /// The snapshot
    #[arg(value_name = "IN")]
    from: PathBuf,
    /// The new file, which ends in .json or .pickle
    #[arg(value_name = "OUT")]
    to: PathBuf,
}

#[derive(Clone, Copy, Debug)]
enum Format {
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

fn format_of(path: &Path) -> Result<Format, CliError> {
    match path.extension().and_then(OsStr::to_str) {
        Some("json") => Ok(Format::Json),
        Some("pickle" | "pkl") => Ok(Format::Pickle),
        _ => Err(CliError::SnapshotEnding { path: path.to_owned() }),
    }
}
