//! Why a source could not do what was asked.

#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;

use cachette_hal::load::Library;
use cachette_hal::{LoadError, Tried};

/// What kind of failure it was, for code that must choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// The source has no memory left for this request; giving some back may help.
    OutOfMemory,
    /// The source cannot be had here at all: its library, a function of it or its device is missing.
    Unavailable,
    /// Anything else; asking again will not help.
    Other,
}

/// Why a source could not do what was asked: a kind, what happened, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceError {
    kind: SourceErrorKind,
    text: String,
    advice: Cow<'static, str>,
}

impl SourceError {
    /// Describes a failure by what happened and by what to do about it.
    pub fn new(kind: SourceErrorKind, text: impl Into<String>, advice: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, text: text.into(), advice: advice.into() }
    }

    /// The source has no memory left for this request.
    pub fn out_of_memory(text: impl Into<String>) -> Self {
        let advice = "give memory back and try again";
        Self::new(SourceErrorKind::OutOfMemory, text, advice)
    }

    /// The source cannot be had here.
    pub fn unavailable(text: impl Into<String>, advice: impl Into<Cow<'static, str>>) -> Self {
        Self::new(SourceErrorKind::Unavailable, text, advice)
    }

    /// A failure that asking again will not mend.
    pub fn other(text: impl Into<String>, advice: impl Into<Cow<'static, str>>) -> Self {
        Self::new(SourceErrorKind::Other, text, advice)
    }

    /// The class of the failure.
    #[must_use]
    pub const fn kind(&self) -> SourceErrorKind {
        self.kind
    }

    /// What happened.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> &str {
        &self.advice
    }

    /// Tells a library that could not be used as one of `what`, with every name that was tried.
    pub(crate) fn from_load(what: &str, advice: String, error: LoadError) -> Self {
        let text = match error {
            LoadError::LibraryMissing { tried } => {
                format!("no library of {what} could be opened; tried {}", list(&tried))
            }
            LoadError::SymbolsMissing { library, symbols } => {
                format!("{library} is not usable as {what}: it lacks {}", symbols.join(", "))
            }
            other => format!("{what} cannot be used: {other}"),
        };
        Self::unavailable(text, advice)
    }

    /// Tells the functions that a library lacks.
    pub(crate) fn lacks(library: &Library, missing: &[&str]) -> Self {
        let symbols = missing.join(", ");
        Self::unavailable(
            format!("{} has no function {symbols}", library.name()),
            "export it with C linkage under this name, or name another",
        )
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.text, self.advice)
    }
}

impl std::error::Error for SourceError {}

/// Writes what was tried as `a (why), b (why)`.
pub(crate) fn list(tried: &[Tried]) -> String {
    let each = tried.iter().map(|tried| format!("{} ({})", tried.name, tried.why));
    each.collect::<Vec<_>>().join(", ")
}
