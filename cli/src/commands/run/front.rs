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

/// The newest front near this program: in its folder, where Cargo puts those of both profiles, or where an installation
/// has libraries.
fn beside() -> Option<PathBuf> {
    newest(env::current_exe().ok()?.parent()?)
}

fn newest(folder: &Path) -> Option<PathBuf> {
    let folders = ["", "../lib", "deps", "..", "../debug", "../release"];
    let files = folders.iter().map(|place| folder.join(place).join(FILE)).filter(|file| file.is_file());
    files.max_by_key(|file| fs::metadata(file).and_then(|file| file.modified()).ok())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn the_newest_front_is_used() {
        let target = tempfile::tempdir().unwrap();
        let program = target.path().join("release");
        for (age, place) in (0..).zip(["release", "debug", "release/deps"]) {
            assert_eq!(newest(&program).is_some(), age > 0);
            fs::create_dir_all(target.path().join(place)).unwrap();
            let file = fs::File::create(target.path().join(place).join(FILE)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(age)).unwrap();
            let found = fs::canonicalize(newest(&program).unwrap()).unwrap();
            assert_eq!(found, fs::canonicalize(target.path().join(place).join(FILE)).unwrap());
        }
    }
}
