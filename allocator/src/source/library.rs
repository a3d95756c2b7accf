//! Libraries of sources: where they are looked for, and what is said where there is none.

use std::ffi::OsString;
use std::path::Path;

use cachette_hal::LoadError;
use cachette_hal::load::{Candidate, Library};

use super::SourceError;
use super::error::list;

/// What is looked for: the library's own name, its file names best first, and the variable that names a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sought {
    pub(crate) what: &'static str,
    pub(crate) names: &'static [&'static str],
    pub(crate) variable: &'static str,
}

impl Sought {
    /// Opens the file that the variable names, or what the process has loaded, or what the system finds.
    pub(crate) fn find(self) -> Result<Library, SourceError> {
        let candidates = self.candidates(std::env::var_os(self.variable));
        // SAFETY: the names are the library's own; a file is named by whoever starts the program.
        let opened = unsafe { Library::open_first(&candidates) };
        opened.map_err(|error| self.missing(error))
    }

    /// Opens the library at `path`, and no other.
    ///
    /// # Safety
    ///
    /// 1. The file is the library sought, or one that keeps to its C interface.
    pub(crate) unsafe fn open(self, path: &Path) -> Result<Library, SourceError> {
        // SAFETY: 1. is the caller's promise.
        let opened = unsafe { Library::open_first(&[Candidate::Path(path.into())]) };
        opened.map_err(|error| self.missing(error))
    }

    /// What to say where the library or a function of it is missing.
    pub(crate) fn missing(self, error: LoadError) -> SourceError {
        let Self { what, variable, .. } = self;
        let advice = format!("install {what}, or name its file in {variable}");
        SourceError::from_load(what, advice, error)
    }

    /// Where it is looked for, best first.
    ///
    /// A file that the variable names is the only candidate: whoever names one does not want another. A copy that
    /// the process has loaded comes before the system's, for these libraries keep their state in themselves.
    fn candidates(self, named: Option<OsString>) -> Vec<Candidate> {
        if let Some(path) = named.filter(|path| !path.is_empty()) {
            return vec![Candidate::Path(path.into())];
        }
        let loaded = self.names.iter().map(|&name| Candidate::Loaded(name.into()));
        let found = self.names.iter().map(|&name| Candidate::Name(name.into()));
        loaded.chain(found).collect()
    }
}

/// Opens a library of the user's own; a name without a folder is one that the system searches for.
///
/// # Safety
///
/// 1. The library's initialisers are sound to run.
pub(crate) unsafe fn open_own(path: &Path) -> Result<Library, SourceError> {
    let shown = path.display();
    let searched = path.parent().is_none_or(|folder| folder.as_os_str().is_empty());
    if !searched && !path.exists() {
        return Err(SourceError::unavailable(
            format!("there is no file {shown}"),
            "check the path, and build the library first",
        ));
    }
    let candidate = match path.to_str() {
        Some(name) if searched => Candidate::Name(name.into()),
        _ => Candidate::Path(path.into()),
    };
    // SAFETY: 1. is the caller's promise.
    let opened = unsafe { Library::open_first(&[candidate]) };
    opened.map_err(|error| {
        let why = match error {
            LoadError::LibraryMissing { tried } => list(&tried),
            other => other.to_string(),
        };
        SourceError::unavailable(
            format!("not a library that can be opened: {why}"),
            "give a shared library for this system, and see that all it needs is found",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUGHT: Sought = Sought {
        what: "Nothing",
        names: &["libcachette-nothing.so.1", "libcachette-nothing.so"],
        variable: "CACHETTE_NOTHING_LIBRARY",
    };

    #[test]
    fn what_is_loaded_comes_before_what_is_found() {
        let names = SOUGHT.candidates(None).into_iter();
        let loaded = names.map(|name| matches!(name, Candidate::Loaded(_)));
        assert_eq!(loaded.collect::<Vec<_>>(), [true, true, false, false]);
    }

    #[test]
    fn a_file_that_the_variable_names_is_the_only_candidate() {
        let named = SOUGHT.candidates(Some("/x/lib.so".into()));
        assert_eq!(named, [Candidate::Path("/x/lib.so".into())]);
        assert_eq!(SOUGHT.candidates(Some("".into())).len(), 4);
    }

    #[test]
    fn an_absent_library_is_told_with_every_name_and_the_variable() {
        let error = SOUGHT.find().unwrap_err().to_string();
        assert!(error.starts_with("no library of Nothing could be opened; tried "));
        assert!(error.contains("libcachette-nothing.so.1 (not loaded in this process)"));
        assert!(error.contains("libcachette-nothing.so (No such file or directory)"));
        assert!(error.ends_with("name its file in CACHETTE_NOTHING_LIBRARY"));
    }
}
