//! Errors of calls, and a lock that survives a panic.

use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use cachette_hal::{Call, Error, ErrorKind, Result};

pub(crate) const fn fail<T>(call: Call, kind: ErrorKind) -> Result<T> {
    Err(error(call, kind))
}

/// Returns an error of `call`, before it had any effect.
pub(crate) const fn error(call: Call, kind: ErrorKind) -> Error {
    Error::new(kind, call.name())
}

/// Fails `call` unless the condition holds.
pub(crate) fn check(holds: bool, call: Call, kind: ErrorKind) -> Result<()> {
    if holds { Ok(()) } else { fail(call, kind) }
}

/// Takes a lock for writing. Its data is consistent even after a panic, because no holder panics halfway.
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
