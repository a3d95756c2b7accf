//! Where a replay ended early, and why.

use std::fmt;

use cachette::Error;

/// One way through a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// Through an empty allocator.
    First,
    /// Through what the first left behind.
    Second,
    /// Through what the second left behind.
    Third,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first",
            Self::Second => "second",
            Self::Third => "third",
        })
    }
}

/// Where a replay ended early, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The pass that it was in.
    pub pass: Pass,
    /// The operation, counted from 1, which is its line in the trace; 0 if it never began.
    pub operation: usize,
    /// What the allocator answered.
    pub error: Error,
}

impl Failure {
    /// Whether it ran out of memory.
    #[must_use]
    pub const fn is_out_of_memory(&self) -> bool {
        matches!(self.error, Error::OutOfMemory(_) | Error::TooLarge { .. })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pass, operation, error } = self;
        write!(f, "operation {operation} of the {pass} pass failed: {error}")
    }
}

#[expect(clippy::ref_option, reason = "the signature that the derived code calls")]
pub(super) fn as_text<S: serde::Serializer>(error: &Option<Failure>, out: S) -> Result<S::Ok, S::Error> {
    match error {
        Some(failure) => out.collect_str(failure),
        None => out.serialize_none(),
    }
}
