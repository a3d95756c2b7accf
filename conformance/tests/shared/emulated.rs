//! Where Cargo has put the emulated libraries.

use std::env;
use std::path::PathBuf;

/// The emulated library with this file name.
///
/// Cargo puts it beside the test program, or one folder up, according to what else it was asked to build.
pub(crate) fn library(file: &str) -> PathBuf {
    let program = env::current_exe().expect("a program knows where it is");
    let folders = program.ancestors().skip(1).take(2);
    let mut files = folders.map(|folder| folder.join(file));
    files.find(|file| file.exists()).unwrap_or_else(|| panic!("{file} was not built beside {}", program.display()))
}
