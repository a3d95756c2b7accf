//! Result files for other programs.

use std::fs::File;
use std::io::{self, StdoutLock, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::CliError;
use crate::stdout;

/// An output file for results.
///
/// It is created before the work begins, so that an unwritable path fails early.
#[derive(Debug)]
pub(crate) enum JsonFile {
    /// No file was named.
    None,
    /// The path was `-`.
    Stdout,
    File {
        path: PathBuf,
        file: File,
    },
}

impl JsonFile {
    pub(crate) fn create(path: Option<&Path>) -> Result<Self, CliError> {
        let Some(path) = path else { return Ok(Self::None) };
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        let file = File::create(path).map_err(|error| CliError::OutputFile { path: path.to_owned(), error })?;
        Ok(Self::File { path: path.to_owned(), file })
    }

    /// Prints the text for people, unless the standard output is for the results.
    pub(crate) fn print(&self, write: impl FnOnce(&mut StdoutLock<'_>) -> io::Result<()>) -> io::Result<()> {
        if matches!(self, Self::Stdout) { Ok(()) } else { stdout::print(write) }
    }

    pub(crate) fn write(self, results: &impl Serialize) -> Result<(), CliError> {
        match self {
            Self::None => Ok(()),
            Self::Stdout => Ok(stdout::print(|out| write_to(out, results))?),
            Self::File { path, mut file } => {
                write_to(&mut file, results).map_err(|error| CliError::OutputFile { path, error })
            }
        }
    }
}

/// Writes the results as JSON, with a line end.
pub(crate) fn write_to(mut out: impl Write, results: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut out, results)?;
    writeln!(out)
}
