//! State behind a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// State behind a lock, consistent even after a panic, because no holder panics halfway.
#[derive(Debug, Default)]
pub(crate) struct Guarded<T>(Mutex<T>);

impl<T> Guarded<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
