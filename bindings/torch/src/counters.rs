//! Counters of errors that could not be returned.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How often something went wrong that the caller could not be told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Addresses that were to be freed and that no allocator gave out, or that were free already.
    pub unknown_frees: u64,
    /// Addresses whose use by another stream was to be recorded and that no allocator gave out.
    pub unknown_uses: u64,
    /// Frees in which the driver failed; that memory becomes free later.
    pub failed_frees: u64,
    /// Pools that were to be released and had no user.
    pub failed_releases: u64,
    /// Requests of slots that failed for another reason than want of memory.
    pub failed_slots: u64,
}

/// The counts so far.
#[must_use]
pub fn counters() -> Counters {
    Counters {
        unknown_frees: UNKNOWN_FREES.count.load(Relaxed),
        unknown_uses: UNKNOWN_USES.count.load(Relaxed),
        failed_frees: FAILED_FREES.count.load(Relaxed),
        failed_releases: FAILED_RELEASES.count.load(Relaxed),
        failed_slots: FAILED_SLOTS.count.load(Relaxed),
    }
}

pub(crate) static UNKNOWN_FREES: Mishaps = Mishaps::new();
pub(crate) static UNKNOWN_USES: Mishaps = Mishaps::new();
pub(crate) static FAILED_FREES: Mishaps = Mishaps::new();
pub(crate) static FAILED_RELEASES: Mishaps = Mishaps::new();
pub(crate) static FAILED_SLOTS: Mishaps = Mishaps::new();

/// A count of one kind of mishap. Relaxed: it is only a count.
#[derive(Debug)]
pub(crate) struct Mishaps {
    count: AtomicU64,
}

impl Mishaps {
    const fn new() -> Self {
        Self { count: AtomicU64::new(0) }
    }

    /// Counts one.
    pub(crate) fn note(&self) {
        self.count.fetch_add(1, Relaxed);
    }

    /// Counts one, and writes the first to stderr.
    #[cold]
    pub(crate) fn tell(&self, what: impl fmt::Display) {
        if self.count.fetch_add(1, Relaxed) == 0 {
            write_line(what);
        }
    }
}

/// Writes a line to stderr, if there is one.
pub(crate) fn write_line(what: impl fmt::Display) {
    // A process may have closed it; then the message is dropped.
    let _ = writeln!(io::stderr(), "cachette: {what}");
}
