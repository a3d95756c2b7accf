//! Counters of errors that could not be returned.

use cachette_process::FirstOnly;

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
        unknown_frees: UNKNOWN_FREES.count(),
        unknown_uses: UNKNOWN_USES.count(),
        failed_frees: FAILED_FREES.count(),
        failed_releases: FAILED_RELEASES.count(),
        failed_slots: FAILED_SLOTS.count(),
    }
}

pub(crate) static UNKNOWN_FREES: FirstOnly = FirstOnly::new();
pub(crate) static UNKNOWN_USES: FirstOnly = FirstOnly::new();
pub(crate) static FAILED_FREES: FirstOnly = FirstOnly::new();
pub(crate) static FAILED_RELEASES: FirstOnly = FirstOnly::new();
pub(crate) static FAILED_SLOTS: FirstOnly = FirstOnly::new();
