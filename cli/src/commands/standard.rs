//! Standard streams in the place of files.

use std::convert::Infallible;
use std::path::PathBuf;

/// Reads the path of an input file; `-` is the standard input.
pub(super) fn input(text: &str) -> Result<PathBuf, Infallible> {
    Ok(if text == "-" { "/dev/stdin" } else { text }.into())
}

/// Reads the path of an output file; `-` is the standard output.
pub(super) fn output(text: &str) -> Result<PathBuf, Infallible> {
    Ok(if text == "-" { "/dev/stdout" } else { text }.into())
}
