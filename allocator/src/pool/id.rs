//! The ids of pools.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The id of a pool, unique in the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId {
    /// The number of a capture pool; zero for a pool that a user created.
    pub capture: u64,
    /// The number of a pool that a user created; zero for a capture pool.
    pub user: u64,
}

impl PoolId {
    /// The default pool, which serves all requests without a route.
    pub const DEFAULT: Self = Self { capture: 0, user: 0 };

    /// Returns a new id, for a pool that is created later. PyTorch calls it a pool handle.
    #[doc(alias = "graph_pool_handle")]
    #[must_use]
    pub fn new() -> Self {
        /// Relaxed: only the numbers must differ.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { capture: 0, user: NEXT.fetch_add(1, Relaxed) }
    }

    pub(super) fn of_capture() -> Self {
        /// Relaxed: only the numbers must differ.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { capture: NEXT.fetch_add(1, Relaxed), user: 0 }
    }

    /// The id as a pair, for sources and other languages.
    #[must_use]
    pub const fn pair(self) -> (u64, u64) {
        (self.capture, self.user)
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}, {}}}", self.capture, self.user)
    }
}
