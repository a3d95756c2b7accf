//! Why a call of a source failed.

#![forbid(unsafe_code)]

use std::borrow::Cow;

/// The kind of a failure, for code that handles kinds differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// The source has no memory left for this request; freeing some may help.
    OutOfMemory,
    /// The source cannot be used here: its library, a function of it or its device is missing.
    Unavailable,
    /// Anything else; a second attempt will not help.
    Other,
}

/// Why a call of a source failed: a kind, what happened, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}; {advice}")]
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
        Self::new(SourceErrorKind::OutOfMemory, text, "free memory and try again")
    }

    /// The source cannot be used here.
    pub fn unavailable(text: impl Into<String>, advice: impl Into<Cow<'static, str>>) -> Self {
        Self::new(SourceErrorKind::Unavailable, text, advice)
    }

    /// A failure that a second attempt will not mend.
    pub fn other(text: impl Into<String>, advice: impl Into<Cow<'static, str>>) -> Self {
        Self::new(SourceErrorKind::Other, text, advice)
    }

    /// The kind of the failure.
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
}
