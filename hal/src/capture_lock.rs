//! A lock for the calls that use a capture.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lets one call at a time use a capture.
///
/// A driver may free a capture at its end while another thread is in a call for one of its streams or events. A backend
/// then counts its captures with [`begin`](Self::begin) and [`finish`](Self::finish). It ends them under
/// [`lock`](Self::lock), and makes every other call for a captured stream, or for an event, under [`hold`](Self::hold).
///
/// A call for a stream outside captures must not hold the lock: it may wait for work that needs the end of a capture.
#[derive(Debug, Default)]
pub struct CaptureLock {
    /// The captures that were begun and not ended.
    open: AtomicUsize,
    mutex: Mutex<()>,
}

impl CaptureLock {
    /// A lock without captures.
    #[must_use]
    pub const fn new() -> Self {
        Self { open: AtomicUsize::new(0), mutex: Mutex::new(()) }
    }

    /// Counts a capture that is about to begin.
    pub fn begin(&self) {
        self.open.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts a capture that has ended, or did not begin.
    pub fn finish(&self) {
        // Another user of the driver may have begun it, so it may not be counted.
        let _ = self.open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |open| open.checked_sub(1));
    }

    /// Whether a capture is open.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst) > 0
    }

    /// Waits for the other calls that use a capture.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        // The mutex protects no data of this process, so a panic cannot leave any half changed.
        self.mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks for a call, unless no capture is open or `is_outside` returns that the call uses none.
    pub fn hold(&self, is_outside: impl FnOnce() -> bool) -> Option<MutexGuard<'_, ()>> {
        if !self.is_open() {
            return None;
        }
        let held = self.lock();
        (!is_outside()).then_some(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_held_without_a_capture() {
        let lock = CaptureLock::new();
        assert!(lock.hold(|| false).is_none());
        lock.begin();
        assert!(lock.hold(|| false).is_some());
        assert!(lock.hold(|| true).is_none(), "a stream outside captures");
        lock.finish();
        assert!(lock.hold(|| false).is_none(), "after its end");
    }

    #[test]
    fn an_end_of_a_foreign_capture_is_not_counted() {
        let lock = CaptureLock::new();
        lock.finish();
        lock.begin();
        assert!(lock.is_open());
    }

    #[test]
    fn an_end_waits_for_the_calls_under_way() {
        let lock = CaptureLock::new();
        lock.begin();
        let held = lock.hold(|| false);
        assert!(lock.mutex.try_lock().is_err(), "a call is under way");
        drop(held);
        assert!(lock.hold(|| true).is_none() && lock.mutex.try_lock().is_ok(), "no call uses the capture");
    }
}
