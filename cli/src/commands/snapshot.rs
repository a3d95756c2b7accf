//! `cachette snapshot`: operations on snapshots.

mod convert;
mod diff;
mod info;
mod summary;
mod view;

use std::path::Path;

use clap::{Args, Subcommand};

use crate::error::CliError;

/// Shows, compares, converts and draws memory snapshots of PyTorch or Cachette
///
/// A snapshot is a pickle from `torch.cuda.memory._dump_snapshot`, or JSON, and may be compressed with gzip. Pickles
/// are read as data; their code is never run. Exit code 2 if a file cannot be read or written.
#[derive(Debug, Args)]
pub(crate) struct Snapshot {
    #[command(subcommand)]
    what: What,
}

/// The subcommand.
#[derive(Debug, Subcommand)]
enum What {
    Info(info::Info),
    Diff(diff::Diff),
    Convert(convert::Convert),
    View(view::View),
}

impl Snapshot {
    pub(super) fn run(self) -> Result<(), CliError> {
        match self.what {
            What::Info(info) => info.run(),
            What::Diff(diff) => diff.run(),
            What::Convert(convert) => convert.run(),
            What::View(view) => view.run(),
        }
    }
}

/// An error if a snapshot cannot have this name.
pub(super) fn check_ending(path: &Path) -> Result<(), CliError> {
    convert::format_of(path).map(drop)
}
