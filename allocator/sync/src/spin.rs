//! A spin lock of one bit: an exchange takes it, and a store releases it.

#![forbid(unsafe_code)]

use crate::{AtomicBool, Ordering, back_off_until};

/// Whether a lock is held.
#[derive(Debug)]
pub(crate) struct Spin {
    held: AtomicBool,
}

impl Spin {
    /// A lock over `held`, which is `false` for a free lock.
    pub(crate) const fn new(held: AtomicBool) -> Self {
        Self { held }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(crate) fn try_take(&self) -> bool {
        // Pairs with the store in `leave`: the next holder sees the writes of the last one.
        !self.held.swap(true, Ordering::Acquire)
    }

    /// Waits until the current holder releases the lock, and takes it. The first wait has the length of round `first`.
    #[cold]
    pub(crate) fn wait(&self, first: u32) {
        back_off_until(first, || !self.held.load(Ordering::Relaxed) && self.try_take());
    }

    /// Releases the lock.
    #[inline]
    pub(crate) fn leave(&self) {
        // Pairs with the exchange in `try_take`.
        self.held.store(false, Ordering::Release);
    }
}
