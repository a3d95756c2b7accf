//! Counters of errors that could not be returned.

use cachette_process::FirstOnly;

/// The number of errors that could not be returned to the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Frees of an address that no allocator has allocated, or that is already free.
    pub unknown_frees: u64,
    /// Records of a stream for an address that no allocator has allocated.
    pub unknown_uses: u64,
    /// Frees in which the driver failed. That memory becomes free later.
    pub failed_frees: u64,
    /// Releases of a pool without users.
    pub failed_releases: u64,
    /// Frees of pinned memory in which the driver failed, or of memory that was not pinned here.
    pub failed_unpins: u64,
}

/// Returns the counts so far.
#[must_use]
pub fn counters() -> Counters {
    Counters {
        unknown_frees: UNKNOWN_FREES.count(),
        unknown_uses: UNKNOWN_USES.count(),
        failed_frees: FAILED_FREES.count(),
        failed_releases: FAILED_RELEASES.count(),
        failed_unpins: FAILED_UNPINS.count(),
    }
}

pub(crate) static UNKNOWN_FREES: FirstOnly = FirstOnly::new();
pub(crate) static UNKNOWN_USES: FirstOnly = FirstOnly::new();
pub(crate) static FAILED_FREES: FirstOnly = FirstOnly::new();
pub(crate) static FAILED_RELEASES: FirstOnly = FirstOnly::new();
pub(crate) static FAILED_UNPINS: FirstOnly = FirstOnly::new();
