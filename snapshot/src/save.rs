//! Writes snapshots to files.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
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
/// It renames a temporary file of the same folder, so a reader never sees a partial file. A link stays a link.
pub fn save(snapshot: &Snapshot, path: &Path) -> Result<(), SaveError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let write: fn(&Snapshot, &mut BufWriter<File>) -> io::Result<()> = match path.extension().and_then(OsStr::to_str) {
        Some("json") => |snapshot, file| snapshot.write_json(file),
        Some("pickle" | "pkl") => |snapshot, file| snapshot.write_pickle(file),
        _ => return Err(SaveError::Format { path: path.to_owned() }),
    };
    // A rename would replace a link by the file.
    let linked = fs::canonicalize(path).ok().filter(|linked| linked.is_file());
    let file = linked.as_deref().unwrap_or(path);
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.{}.part", process::id(), COUNT.fetch_add(1, Relaxed)));
    let beside = file.with_file_name(name);
    let written = File::create(&beside).and_then(|file| {
        let mut file = BufWriter::new(file);
        write(snapshot, &mut file)?;
        file.flush()
    });
    written.and_then(|()| fs::rename(&beside, file)).map_err(|error| {
        // A partial file is useless. If no file was created, there is nothing to remove.
        let _ = fs::remove_file(&beside);
        SaveError::File { path: path.to_owned(), error }
    })
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
