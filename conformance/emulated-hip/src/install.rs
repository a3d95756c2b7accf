//! Copies of the shared library where a loader finds them.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;

use cachette_hal::Guarded;

use crate::personality::Personality;

const LIBRARY: &str = "libcachette_emulated_hip.so";

/// Puts a copy with this personality beside the build, and returns its path.
///
/// Each is a separate file, so that one process can load several. The folder has the version's name and the file its
/// soname, so that an ordinary loader finds it by `LD_LIBRARY_PATH`.
pub fn install(personality: Personality) -> io::Result<PathBuf> {
    // One thread of a process at a time; the names of unfinished files differ between processes.
    static LOCK: Guarded<()> = Guarded::new(());
    let _locked = LOCK.lock();
    let built = find()?;
    let beside = built.parent().unwrap_or(Path::new("."));
    let folder = beside.join("emulated-hip").join(personality.name());
    fs::create_dir_all(&folder)?;
    let copy = folder.join(personality.soname());
    if !is_current(&copy, &built)? {
        // Under another name first: another process may be loading it this moment.
        let fresh = folder.join(format!("fresh-{}", process::id()));
        fs::copy(&built, &fresh)?;
        fs::rename(&fresh, &copy)?;
    }
    Ok(copy)
}

/// Finds the library among the files of the build that the running program belongs to.
fn find() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    let folders = program.ancestors().skip(1).take(3);
    let places = folders.flat_map(|folder| [folder.join(LIBRARY), folder.join("deps").join(LIBRARY)]);
    let found = places.filter(|place| place.is_file());
    // Cargo may leave an old one in one of the places.
    let newest = found.max_by_key(|place| fs::metadata(place).and_then(|file| file.modified()).ok());
    newest.ok_or_else(|| {
        let text = format!("{LIBRARY} is not beside {}", program.display());
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

/// Whether the copy is as new as what it was made from.
fn is_current(copy: &Path, built: &Path) -> io::Result<bool> {
    let Ok(copy) = fs::metadata(copy) else { return Ok(false) };
    let built = fs::metadata(built)?;
    Ok(copy.len() == built.len() && copy.modified()? >= built.modified()?)
}
