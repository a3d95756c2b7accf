//! Lines on stderr, for failures that no caller can receive.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Writes a line to stderr, if there is one.
pub fn write_line(what: impl fmt::Display) {
    // A process may have closed it; then the message is dropped.
    let _ = writeln!(io::stderr(), "cachette: {what}");
}

/// Counts one kind of failure, and writes only the first to stderr. Relaxed: it is independent of other data.
#[derive(Debug, Default)]
pub struct FirstOnly(AtomicU64);

impl FirstOnly {
    /// A count of zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The count.
    pub fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Counts one failure.
    pub fn note(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Counts one failure. Writes the first one to stderr.
    #[cold]
    pub fn tell(&self, what: impl fmt::Display) {
        if self.0.fetch_add(1, Relaxed) == 0 {
            write_line(what);
        }
    }
}
