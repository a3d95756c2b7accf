//! Who holds a lock: one bit, taken by an exchange and left by a store.

#![forbid(unsafe_code)]

use crate::sync::{AtomicBool, Ordering, back_off};

/// Who holds a lock.
#[derive(Debug)]
pub(crate) struct Spin {
    held: AtomicBool,
}

impl Spin {
    /// A lock that nobody holds.
    pub(crate) const fn new(held: AtomicBool) -> Self {
        Self { held }
    }

    /// Takes the lock if nobody holds it.
    #[inline]
    pub(crate) fn try_take(&self) -> bool {
        // Pairs with the store in `leave`: what the last holder wrote is seen by the next.
        !self.held.swap(true, Ordering::Acquire)
    }

    /// Takes the lock, after whoever was found to hold it.
    #[cold]
    pub(crate) fn wait(&self) {
        for round in 0.. {
            back_off(round);
            if !self.held.load(Ordering::Relaxed) && self.try_take() {
                return;
            }
        }
    }

    /// Leaves the lock to the next.
    #[inline]
    pub(crate) fn leave(&self) {
        // Pairs with the exchange in `try_take`.
        self.held.store(false, Ordering::Release);
    }
}
