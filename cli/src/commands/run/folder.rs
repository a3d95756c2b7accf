//! The folder with libraries of the driver's names.
//!
//! It lies among the user's cached files and is found again by the next run. Its files are replaced as a whole, because
//! another program may be loading them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{env, fs, io, process};

use super::driver::{self, Driver};
use super::elf;
use crate::error::CliError;

/// Writes a library for each name of each driver; the folder.
pub(super) fn fill(front: &Path, drivers: &[Driver]) -> Result<PathBuf, CliError> {
    let mut hasher = DefaultHasher::new();
    front.hash(&mut hasher);
    for driver in drivers {
        driver.file.hash(&mut hasher);
    }
    let name = format!("{:016x}", hasher.finish());
    let mut refused = None;
    for base in bases() {
        let folder = base.join(&name);
        match make(&base, &folder).and_then(|()| write_all(&folder, front, drivers)) {
            Ok(()) => return Ok(folder),
            Err(error) => refused = Some(CliError::Folder { path: folder, error }),
        }
    }
    Err(refused.unwrap_or(CliError::NoFront))
}

/// Where the folder may be: among the user's cached files, or among temporary ones.
fn bases() -> Vec<PathBuf> {
    let path = |variable: &str| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let cached = path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")));
    let user = fs::metadata("/proc/self").map_or(0, |own| own.uid());
    let temporary = env::temp_dir().join(format!("cachette-{user}"));
    cached.map(|folder| folder.join("cachette").join("run")).into_iter().chain([temporary]).collect()
}

/// Makes a folder that no other user can write to: programs load what lies there.
fn make(base: &Path, folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let user = fs::metadata("/proc/self")?.uid();
    for path in [base, folder] {
        let found = fs::symlink_metadata(path)?;
        if found.uid() != user || found.permissions().mode() & 0o022 != 0 || !found.is_dir() {
            return Err(io::Error::other("another user could write to it"));
        }
    }
    // The loader separates the paths of a variable by these.
    if folder.to_string_lossy().contains([':', ';']) {
        return Err(io::Error::other("the loader takes no path with a colon or a semicolon"));
    }
    Ok(())
}

fn write_all(folder: &Path, front: &Path, drivers: &[Driver]) -> io::Result<()> {
    for driver in drivers {
        for name in &driver.names {
            let library = elf::forwarding(name, &[front, &driver.file], &driver.versions);
            write(&folder.join(name), &library)?;
            let plain = folder.join(driver::plain(name));
            if plain.file_name() != Some(name.as_ref()) {
                link(&plain, name)?;
            }
        }
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let fresh = path.with_extension(format!("{}.new", process::id()));
    fs::write(&fresh, bytes)?;
    fs::rename(fresh, path)
}

fn link(path: &Path, to: &str) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    match std::os::unix::fs::symlink(to, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}
