//! Which process this is, counted from the first one that used this library.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Relaxed everywhere: it changes only in a forked child, while that has one thread.
static GENERATION: AtomicU64 = AtomicU64::new(FIRST);
/// The process that used this library first.
const FIRST: u64 = 1;

/// The number of this process.
#[inline]
pub(crate) fn current() -> u64 {
    GENERATION.load(Relaxed)
}

/// Whether this process was forked from one that used allocators.
#[inline]
pub(crate) fn is_child() -> bool {
    current() != FIRST
}

/// Counts a fork, in the child.
pub(crate) fn advance() {
    GENERATION.fetch_add(1, Relaxed);
}
