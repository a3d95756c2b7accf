//! Panics stop before they reach a caller in another language.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A panic in the allocator: a defect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("internal error, please report it: {0}")]
pub struct Panicked(pub String);

/// Runs `work` and returns a panic as an error, since the caller is not Rust.
#[inline]
pub fn guarded<T, E: From<Panicked>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    // Locks protect all state that a panic may leave incomplete, and their users detect it.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done,
        Err(panic) => Err(Panicked(text_of(&*panic)).into()),
    }
}

#[cold]
fn text_of(panic: &(dyn Any + Send)) -> String {
    let fixed = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let made = || panic.downcast_ref::<String>().cloned();
    fixed.or_else(made).unwrap_or_else(|| "a panic".to_owned())
}
