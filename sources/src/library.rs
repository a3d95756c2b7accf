//! Libraries of sources: the names to try, and the errors for missing ones.

use std::ffi::OsString;
use std::path::Path;

use cachette::source::SourceError;
use cachette_hal::load::{Candidate, Library};
use cachette_hal::{LoadError, Tried};

/// The names of a vendor's library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VendorLibrary {
    /// The product's name.
    pub(crate) product: &'static str,
    /// The file names, best first.
    pub(crate) names: &'static [&'static str],
    /// The environment variable that names a file.
    pub(crate) variable: &'static str,
}

impl VendorLibrary {
    /// Opens the file that the variable names, or the loaded copy, or the first one that the system finds.
    pub(crate) fn find(self) -> Result<Library, SourceError> {
        let candidates = self.candidates(std::env::var_os(self.variable));
        // SAFETY: the names are the library's own; the user who sets the variable names the library's file.
        let opened = unsafe { Library::open_first(&candidates) };
        opened.map_err(|error| self.missing(error))
    }

    /// Opens the library at `path`, and no other.
    ///
    /// # Safety
    ///
    /// 1. The file is this library, or one with its C interface.
    pub(crate) unsafe fn open(self, path: &Path) -> Result<Library, SourceError> {
        // SAFETY: 1. is the caller's promise.
        let opened = unsafe { Library::open_first(&[Candidate::Path(path.into())]) };
        opened.map_err(|error| self.missing(error))
    }

    /// The error for a library that is missing or lacks functions.
    pub(crate) fn missing(self, error: LoadError) -> SourceError {
        let Self { product, variable, .. } = self;
        let text = match error {
            LoadError::LibraryMissing { tried } => {
                format!("no library of {product} could be opened; tried {}", list(&tried))
            }
            LoadError::SymbolsMissing { library, symbols } => {
                format!("{library} is not usable as {product}: it lacks {}", symbols.join(", "))
            }
            other => format!("{product} cannot be used: {other}"),
        };
        SourceError::unavailable(text, format!("install {product}, or name its file in {variable}"))
    }

    /// Where to look, best first.
    ///
    /// A file that the variable names is the only candidate. Otherwise a copy that the process has loaded comes before
    /// the system's, because these libraries keep global state.
    fn candidates(self, named: Option<OsString>) -> Vec<Candidate> {
        if let Some(path) = named.filter(|path| !path.is_empty()) {
            return vec![Candidate::Path(path.into())];
        }
        let loaded = self.names.iter().map(|&name| Candidate::Loaded(name.into()));
        let found = self.names.iter().map(|&name| Candidate::Name(name.into()));
        loaded.chain(found).collect()
    }
}

/// Lists the attempts as `a (why), b (why)`.
fn list(tried: &[Tried]) -> String {
    tried.iter().map(|tried| format!("{} ({})", tried.name, tried.why)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: VendorLibrary = VendorLibrary {
        product: "Nothing",
        names: &["libcachette-nothing.so.1", "libcachette-nothing.so"],
        variable: "CACHETTE_NOTHING_LIBRARY",
    };

    #[test]
    fn loaded_copies_come_before_the_systems() {
        let names = NOTHING.candidates(None).into_iter();
        let loaded = names.map(|name| matches!(name, Candidate::Loaded(_)));
        assert_eq!(loaded.collect::<Vec<_>>(), [true, true, false, false]);
    }

    #[test]
    fn a_file_that_the_variable_names_is_the_only_candidate() {
        let named = NOTHING.candidates(Some("/x/lib.so".into()));
        assert_eq!(named, [Candidate::Path("/x/lib.so".into())]);
        assert_eq!(NOTHING.candidates(Some("".into())).len(), 4);
    }

    #[test]
    fn the_error_for_an_absent_library_has_every_name() {
        let error = NOTHING.find().unwrap_err().to_string();
        assert!(error.starts_with("no library of Nothing could be opened; tried "));
        assert!(error.contains("libcachette-nothing.so.1 (No such file or directory)"));
        assert!(error.contains("libcachette-nothing.so (No such file or directory)"));
        assert!(error.ends_with("name its file in CACHETTE_NOTHING_LIBRARY"));
    }
}
