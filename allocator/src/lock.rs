//! The lock around a heap: one atomic exchange to take it, one plain store to leave it.
//!
//! A heap is held for some tens of instructions and never across a driver call that can block, so a waiting
//! thread spins briefly and then lets others run, instead of paying on every release for the question whether
//! anyone waits.

mod spin;

use crate::sync::AtomicBool;
use spin::Spin;

/// A mutex for what is held very shortly.
pub(crate) type Lock<T> = lock_api::Mutex<RawLock, T>;

/// The state of a [`Lock`].
#[derive(Debug)]
pub(crate) struct RawLock(Spin);

// SAFETY: `Spin` lets one taker in at a time, and the next only after `unlock`.
unsafe impl lock_api::RawMutex for RawLock {
    const INIT: Self = Self(Spin::new(AtomicBool::new(false)));

    type GuardMarker = lock_api::GuardSend;

    #[inline]
    fn lock(&self) {
        self.0.take();
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.try_take()
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn threads_take_turns() {
        let total = Lock::new(0_u64);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        *total.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*total.lock(), 40_000);
    }
}
