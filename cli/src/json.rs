//! Result files for other programs.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::CliError;

/// An output file for results.
///
/// It is created before the work begins, so that an unwritable path fails early.
#[derive(Debug)]
pub(crate) struct JsonFile {
    path: PathBuf,
    file: File,
}

impl JsonFile {
    pub(crate) fn create(path: &Path) -> Result<Self, CliError> {
        let file = File::create(path).map_err(|error| CliError::OutputFile { path: path.to_owned(), error })?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(crate) fn write(mut self, results: &impl Serialize) -> Result<(), CliError> {
        let written = serde_json::to_writer_pretty(&mut self.file, results)
            .map_err(Into::into)
            .and_then(|()| writeln!(self.file));
        written.map_err(|error| CliError::OutputFile { path: self.path, error })
    }
}
