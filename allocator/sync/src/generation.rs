//! The generation of this process, counted from the first one that used this library.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Relaxed everywhere: it changes only in a forked child, while the child has one thread.
static GENERATION: AtomicU64 = AtomicU64::new(FIRST);
/// The generation of the first process.
const FIRST: u64 = 1;

/// Returns the generation of this process.
#[inline]
pub(crate) fn current() -> u64 {
    GENERATION.load(Relaxed)
}

/// Returns whether this process was forked from one that used allocators.
#[inline]
pub(crate) fn is_child() -> bool {
    current() != FIRST
}

/// Counts a fork, in the child.
pub(crate) fn advance() {
    GENERATION.fetch_add(1, Relaxed);
}
