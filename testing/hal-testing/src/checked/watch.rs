//! The ledger behind its lock.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ledger::{Ending, Finding, Key, Ledger};
use super::misuse::{Misuse, Origin, Resource};
use cachette_hal::{Call, Error, Guarded, Result};

/// The ledger behind its lock, which is never held while the driver runs.
#[derive(Debug)]
pub(super) struct Watch {
    ledger: Guarded<Ledger>,
    /// The last number of an [`Origin`].
    sequence: AtomicU64,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self { ledger: Guarded::new(Ledger::new()), sequence: AtomicU64::new(0) }
    }

    pub(super) fn misuses(&self) -> Vec<Misuse> {
        self.ledger().misuses.clone()
    }

    pub(super) fn leaks(&self) -> Vec<Misuse> {
        self.ledger().leaks()
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock()
    }

    /// The current thread and call stack, with a unique number.
    pub(super) fn origin(&self, call: Call) -> Origin {
        // Relaxed: only uniqueness matters; the ledger's lock orders everything else.
        Origin::here(call, self.sequence.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Records a resource that the driver has just created.
    pub(super) fn note(&self, call: Call, resource: Resource, number: u64, bytes: u64) {
        let origin = self.origin(call);
        self.ledger().note(resource, number, bytes, origin);
    }

    /// Runs a check. Misuse is noted, and becomes the caller's error.
    pub(super) fn check<T>(&self, check: impl FnOnce(&mut Ledger) -> Finding<T>) -> Result<T> {
        let mut ledger = self.ledger();
        check(&mut ledger).map_err(|misuse| {
            let error = Error::new(misuse.what.error_kind(), misuse.call.name());
            ledger.misuses.push(*misuse);
            error
        })
    }

    pub(super) fn used(&self, call: Call, resource: Resource, number: usize) -> Result<()> {
        self.check(|ledger| ledger.used(call, (resource, number as u64)))
    }

    /// Ends a resource by calling `end`, unless that would be misuse.
    pub(super) fn end(&self, call: Call, key: Key, end: impl FnOnce() -> Result<()>) -> Result<()> {
        let by = self.origin(call);
        let ending = self.check(|ledger| ledger.begin_end(key, by))?;
        self.finish_end(ending, end())
    }

    pub(super) fn finish_end(&self, ending: Ending, answer: Result<()>) -> Result<()> {
        self.ledger().finish_end(ending, answer.is_ok());
        answer
    }
}
