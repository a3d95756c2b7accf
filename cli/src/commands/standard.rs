//! Standard streams in the place of files.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};

pub(super) const STDOUT: &str = "/dev/stdout";

/// Reads the path of an input file; `-` is the standard input.
pub(super) fn input() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path| or_stream(path, "/dev/stdin"))
}

/// Reads the path of an output file; `-` is the standard output.
pub(super) fn output() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path| or_stream(path, STDOUT))
}

fn or_stream(path: PathBuf, stream: &str) -> PathBuf {
    if path.as_os_str() == "-" { stream.into() } else { path }
}
