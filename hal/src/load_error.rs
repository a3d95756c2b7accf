//! Why a driver could not be used at all.

use std::fmt;

use crate::{Error, Version};

/// One library that was tried, and why it was not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The name or path.
    pub name: String,
    /// The system's error.
    pub why: String,
}

/// Why a driver could not be used at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No candidate could be opened as a library.
    #[error("no driver library could be opened; tried {}", List(tried))]
    LibraryMissing {
        /// Each name once, with the error of its last attempt.
        tried: Vec<Tried>,
    },
    /// The library opened, but lacks required symbols.
    #[error("{library} is not a usable driver: it lacks {}", symbols.join(", "))]
    SymbolsMissing {
        /// The library opened.
        library: String,
        /// Every required symbol it lacks.
        symbols: Vec<&'static str>,
    },
    /// The driver is older than the oldest one supported.
    #[error("{library} is version {found}, which is too old; install {needs} or newer")]
    TooOld {
        /// The library opened.
        library: String,
        /// First version supported.
        needs: Version,
        /// Version found.
        found: Version,
    },
    /// The driver loaded, but shows no device.
    #[error(
        "{library} shows no device; check that one is installed, that this user may open it, \
         and that no *_VISIBLE_DEVICES variable hides it"
    )]
    NoDevice {
        /// The library opened.
        library: String,
    },
    /// The driver loaded, but failed to start.
    #[error("{library} did not start: {error}")]
    Start {
        /// The library opened.
        library: String,
        /// The driver's error.
        error: Error,
    },
}

/// Writes the candidates as `a (why), b (why)`.
struct List<'a>(&'a [Tried]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing: the list of candidates is empty");
        }
        for (i, tried) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{} ({})", tried.name, tried.why)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_lists_every_name_tried() {
        let error = LoadError::LibraryMissing {
            tried: vec![
                Tried { name: "liba.so.1".into(), why: "not found".into() },
                Tried { name: "/x/liba.so".into(), why: "not a library".into() },
            ],
        };
        assert_eq!(
            error.to_string(),
            "no driver library could be opened; tried liba.so.1 (not found), /x/liba.so (not a library)"
        );
    }
}
