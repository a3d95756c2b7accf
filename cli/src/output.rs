//! Output files that are written completely or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process;

use cachette_snapshot::replace_file;

use crate::error::CliError;

/// Replaces a file. A path that is not a file, such as `/dev/stdout`, is written directly.
pub(crate) fn replace(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), CliError> {
    let written = match target(path) {
        Target::File(file) => replace_file(&file, write),
        Target::Stream => match write_stream(path, write) {
            // The reader of a pipe may close it early, as in `stdout::print`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        },
    };
    written.map_err(|error| CliError::OutputFile { path: path.to_owned(), error })
}

/// Checks that a file can be written there, without a change.
pub(crate) fn check(path: &Path) -> Result<(), CliError> {
    let checked = match target(path) {
        Target::File(file) => probe(&file),
        Target::Stream => OpenOptions::new().write(true).open(path).map(drop),
    };
    checked.map_err(|error| CliError::OutputFile { path: path.to_owned(), error })
}

/// What a path leads to.
enum Target {
    /// A file, which may not exist yet; links are resolved.
    File(PathBuf),
    /// A device, a pipe or a folder, whose name must stay.
    Stream,
}

/// A pipe behind `/dev/stdout` has no path that could be resolved, so the kind of the target is asked first.
fn target(path: &Path) -> Target {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Target::Stream,
        Ok(_) => Target::File(fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())),
        Err(_) => Target::File(path.to_owned()),
    }
}

fn write_stream(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufWriter::new(OpenOptions::new().write(true).open(path)?);
    write(&mut file)?;
    file.flush()
}

/// Creates a file beside another, and deletes it.
fn probe(path: &Path) -> io::Result<()> {
    let beside = beside(path).ok_or(io::ErrorKind::IsADirectory)?;
    File::create(&beside)?;
    fs::remove_file(&beside)
}

/// An unused path in the same folder.
fn beside(path: &Path) -> Option<PathBuf> {
    let mut name = path.file_name()?.to_owned();
    name.push(format!(".{}.part", process::id()));
    Some(path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_panic_leaves_the_older_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        replace(&path, |file| file.write_all(b"older")).unwrap();
        let panicked = std::panic::catch_unwind(|| {
            replace(&path, |file| {
                file.write_all(b"half")?;
                panic!("a defect");
            })
        });
        assert!(panicked.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"older");
        let count = fs::read_dir(&folder).unwrap().count();
        assert_eq!(count, 1, "nothing is left behind");
    }

    #[test]
    fn a_link_to_a_pipe_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("stdout");
        let (mut reader, writer) = io::pipe().unwrap();
        std::os::unix::fs::symlink(format!("/proc/self/fd/{}", writer.as_raw_fd()), &link).unwrap();
        check(&link).unwrap();
        replace(&link, |file| file.write_all(b"page")).unwrap();
        drop(writer);
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, "page");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_pipe_whose_reader_has_gone_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("stdout");
        let (reader, writer) = io::pipe().unwrap();
        std::os::unix::fs::symlink(format!("/proc/self/fd/{}", writer.as_raw_fd()), &link).unwrap();
        drop(reader);
        replace(&link, |file| file.write_all(b"page")).unwrap();
    }

    #[test]
    fn advice_is_about_the_path_only_if_the_path_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("advice");
        let failed = replace(&path, |_| Err(io::Error::other("it has no such format; write it as JSON")));
        assert!(failed.unwrap_err().to_string().ends_with("write it as JSON"));
        let failed = replace(&path.join("page.html"), |_| Ok(()));
        assert!(failed.unwrap_err().to_string().ends_with("name a file in a folder that exists"));
        assert!(!CliError::NoFront.to_string().contains("  "));
    }

    #[test]
    fn a_failure_leaves_the_older_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        replace(&path, |file| file.write_all(b"older")).unwrap();
        let failed = replace(&path, |file| {
            file.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert!(failed.unwrap_err().to_string().contains("page.html"));
        assert_eq!(fs::read(&path).unwrap(), b"older");
        replace(&path, |file| file.write_all(b"newer")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"newer");
        let count = fs::read_dir(&folder).unwrap().count();
        assert_eq!(count, 1, "nothing is left behind");
    }
}
