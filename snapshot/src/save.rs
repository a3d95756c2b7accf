//! Writes snapshots to files.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Snapshot;

/// Why a snapshot could not be saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// The file name does not determine the format.
    #[error("cannot tell the format of '{}'; let its name end in .json or .pickle", path.display())]
    Format {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be written.
    #[error("cannot write '{}': {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        error: io::Error,
    },
}

/// Writes a snapshot to a file: as JSON if its name ends in `.json`, for PyTorch's memory viewer if it ends in
/// `.pickle` or `.pkl`.
///
/// A reader never sees a partial file, as [`replace_file`] says.
pub fn save(snapshot: &Snapshot, path: &Path) -> Result<(), SaveError> {
    let write: fn(&Snapshot, &mut BufWriter<File>) -> io::Result<()> = match path.extension().and_then(OsStr::to_str) {
        Some("json") => |snapshot, file| snapshot.write_json(file),
        Some("pickle" | "pkl") => |snapshot, file| snapshot.write_pickle(file),
        _ => return Err(SaveError::Format { path: path.to_owned() }),
    };
    let written = replace_file(path, |file| write(snapshot, file));
    written.map_err(|error| SaveError::File { path: path.to_owned(), error })
}

/// Writes a file completely or not at all: a temporary file of the same folder is renamed.
///
/// A link stays a link. If `write` fails or panics, the older file stays and nothing else is left.
pub fn replace_file(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // A rename would replace a link by the file.
    let linked = fs::canonicalize(path).ok().filter(|linked| linked.is_file());
    let path = linked.as_deref().unwrap_or(path);
    let mut name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
    name.push(format!(".{}.{}.part", process::id(), COUNT.fetch_add(1, Relaxed)));
    let part = Part(path.with_file_name(name));
    let mut file = BufWriter::new(File::create(&part.0)?);
    write(&mut file)?;
    file.into_inner()?;
    fs::rename(&part.0, path)
}

/// A temporary file; it is deleted on drop unless it was renamed.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        // If the file was never created or already renamed, there is nothing to remove.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h7_the_name_says_the_format_and_a_failure_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let snapshot = Snapshot { pools: vec![crate::PoolId(0, 0)], ..Snapshot::default() };
        for name in ["a.json", "a.pickle", "a.pkl"] {
            save(&snapshot, &folder.join(name)).unwrap();
            assert_eq!(Snapshot::read(&folder.join(name)).unwrap(), snapshot);
        }
        std::os::unix::fs::symlink("a.json", folder.join("link.json")).unwrap();
        fs::write(folder.join("a.json"), "").unwrap();
        save(&snapshot, &folder.join("link.json")).unwrap();
        assert!(folder.join("link.json").is_symlink());
        assert_eq!(Snapshot::read(&folder.join("a.json")).unwrap(), snapshot);
        fs::remove_file(folder.join("link.json")).unwrap();
        let unnamed = save(&snapshot, &folder.join("a.txt")).unwrap_err();
        assert!(unnamed.to_string().ends_with("end in .json or .pickle"));
        let nowhere = save(&snapshot, &folder.join("none/a.json")).unwrap_err();
        assert!(nowhere.to_string().starts_with("cannot write"), "{nowhere}");
        fs::create_dir(folder.join("b.json")).unwrap();
        save(&snapshot, &folder.join("b.json")).unwrap_err();
        assert_eq!(fs::read_dir(folder).unwrap().count(), 4);
    }
}
