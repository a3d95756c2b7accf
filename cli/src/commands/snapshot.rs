//! `cachette snapshot`: what a snapshot says.

mod convert;
mod info;
mod summary;
mod view;

use clap::{Args, Subcommand};

use crate::error::CliError;

/// Shows, converts and draws snapshots, of PyTorch or of Cachette
///
/// A snapshot is a pickle, as `torch.cuda.memory._dump_snapshot` writes, or JSON, and may be packed by gzip. A pickle is
/// read as data: nothing in it is ever run. Exit code 2 if a file cannot be read or written.
#[derive(Debug, Args)]
pub(crate) struct Snapshot {
    #[command(subcommand)]
    what: What,
}

/// What to do with it.
#[derive(Debug, Subcommand)]
enum What {
    Info(info::Info),
    Convert(convert::Convert),
    View(view::View),
}

impl Snapshot {
    pub(super) fn run(self) -> Result<(), CliError> {
        match self.what {
            What::Info(info) => info.run(),
            What::Convert(convert) => convert.run(),
            What::View(view) => view.run(),
        }
    }
}
