//! The front's library.

use std::path::{Path, PathBuf};
use std::{env, fs};

use super::elf;
use crate::error::CliError;

const FILE: &str = "libcachette_front.so";
/// Exported by the front alone.
pub(super) const MARK: &str = "cachette_front_library";

/// Finds the front: where the caller or `CACHETTE_FRONT` says, or near this program.
pub(super) fn find(named: Option<&Path>) -> Result<PathBuf, CliError> {
    let variable = || env::var_os("CACHETTE_FRONT").filter(|path| !path.is_empty()).map(PathBuf::from);
    let path = match named.map(Path::to_path_buf).or_else(variable) {
        Some(path) if path.is_dir() => path.join(FILE),
        Some(path) => path,
        None => beside().ok_or(CliError::NoFront)?,
    };
    let refuse = |why: String| CliError::Front { path: path.clone(), why };
    let file = fs::canonicalize(&path).map_err(|error| refuse(error.to_string()))?;
    let bytes = fs::read(&file).map_err(|error| refuse(error.to_string()))?;
    if !elf::describe(&bytes).is_some_and(|library| library.names(MARK)) {
        return Err(refuse("it is another library or none".to_owned()));
    }
    // The loader separates the paths of a variable by these.
    if file.to_string_lossy().contains([' ', ':', ';']) {
        return Err(refuse("the loader takes no path with a space, a colon or a semicolon".to_owned()));
    }
    Ok(file)
}

/// The front near this program: in its folder, where Cargo puts dependencies, or where an installation has libraries.
fn beside() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let folder = program.parent()?;
    let folders = [folder.to_path_buf(), folder.join("../lib"), folder.join("deps"), folder.join("..")];
    folders.into_iter().map(|folder| folder.join(FILE)).find(|file| file.is_file())
}
