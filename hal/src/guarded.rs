//! State behind a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// State behind a lock, consistent even after a panic, because no holder panics halfway.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Guarded<T>(Mutex<T>);

impl<T> Guarded<T> {
    /// Puts a value behind a lock.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Locks the state.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
