//! The ledger behind its lock, with the observers of misuse.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ledger::{Ending, Finding, Key, Ledger};
use super::misuse::{Misuse, Origin, Resource};
use cachette_hal::{Call, Error, Result};

type Observer = Box<dyn Fn(&Misuse) + Send + Sync>;

/// The ledger behind its lock, with the observers of misuse.
///
/// The lock is never held while the driver or an observer runs.
pub(super) struct Watch {
    ledger: Mutex<Ledger>,
    observers: Vec<Observer>,
    /// The last number of an [`Origin`].
    sequence: AtomicU64,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self { ledger: Mutex::new(Ledger::new()), observers: Vec::new(), sequence: AtomicU64::new(0) }
    }

    pub(super) fn add_observer(&mut self, observer: Observer) {
        self.observers.push(observer);
    }

    pub(super) fn misuses(&self) -> Vec<Misuse> {
        self.ledger().misuses.clone()
    }

    pub(super) fn leaks(&self) -> Vec<Misuse> {
        self.ledger().leaks()
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // No update of the ledger can panic halfway.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Runs a check. Misuse is reported to every observer and becomes the caller's error.
    pub(super) fn check<T>(&self, check: impl FnOnce(&mut Ledger) -> Finding<T>) -> Result<T> {
        let finding = {
            let mut ledger = self.ledger();
            let finding = check(&mut ledger);
            ledger.misuses.extend(finding.as_ref().err().map(|misuse| Misuse::clone(misuse)));
            finding
        };
        finding.map_err(|misuse| {
            self.report(&misuse);
            Error::new(misuse.what.error_kind(), misuse.call.name())
        })
    }

    /// Fails unless the handle is live.
    pub(super) fn used(&self, call: Call, resource: Resource, number: usize) -> Result<()> {
        self.check(|ledger| ledger.used(call, (resource, number as u64)))
    }

    /// Ends a resource by calling `end`, unless that would be misuse.
    pub(super) fn end(&self, call: Call, key: Key, end: impl FnOnce() -> Result<()>) -> Result<()> {
        let by = self.origin(call);
        let ending = self.check(|ledger| ledger.begin_end(key, by))?;
        self.finish_end(ending, end())
    }

    /// Records whether the driver ended the resource.
    pub(super) fn finish_end(&self, ending: Ending, answer: Result<()>) -> Result<()> {
        self.ledger().finish_end(ending, answer.is_ok());
        answer
    }

    fn report(&self, misuse: &Misuse) {
        for observer in &self.observers {
            observer(misuse);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("ledger", &self.ledger)
            .field("observers", &self.observers.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Watch {
    /// Reports every leak.
    fn drop(&mut self) {
        for leak in self.leaks() {
            self.report(&leak);
        }
    }
}
