//! The process that created an object. It shows a forked child that the object belongs to its parent.

use std::sync::Arc;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::{generation, owner_slot};

/// The error of a call in a forked child to an object of its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forked;

/// The process that an object belongs to, so that a forked child detects inherited objects.
#[derive(Debug)]
pub struct ProcessGuard {
    /// The generation of the process; zero if not set yet.
    generation: AtomicU64,
}

impl ProcessGuard {
    /// Creates a guard that belongs to no process yet.
    #[must_use]
    pub const fn unknown() -> Self {
        Self { generation: AtomicU64::new(0) }
    }

    /// Creates a guard that belongs to this process.
    #[must_use]
    pub fn here() -> Self {
        let origin = Self::unknown();
        origin.note();
        origin
    }

    /// Sets this process, unless a process is already set.
    pub fn note(&self) {
        watch();
        // Relaxed: a failure means that another thread, or a parent, was first.
        let _ = self.generation.compare_exchange(0, generation::current(), Relaxed, Relaxed);
    }

    /// Returns whether the object belongs to a process that this one was forked from.
    #[inline]
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        let generation = self.generation.load(Relaxed);
        generation != 0 && generation != generation::current()
    }

    /// Fails for an object of a parent process.
    pub fn check(&self) -> Result<(), Forked> {
        if self.is_inherited() { Err(Forked) } else { Ok(()) }
    }

    /// Leaks a reference to a parent's object until the process ends, so that dropping handles does not destroy it.
    pub fn keep<T>(&self, inherited: &Arc<T>) {
        if self.is_inherited() {
            let _ = Arc::into_raw(Arc::clone(inherited));
        }
    }
}

/// Installs the handler by which every child detects the fork.
///
/// It takes no lock, which a child could find held. If two threads call it at once, the handler runs twice, and a child
/// is two generations after its parent.
fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    // Acquire, with the release below: a thread that sees the handler installed may fork.
    if WATCHED.load(Ordering::Acquire) {
        return;
    }
    // It fails only for lack of memory; then a child gets the errors of its driver.
    // SAFETY: the handler is a function of this library, and changes only a number and the owner slot of a thread.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(child)) };
    WATCHED.store(true, Ordering::Release);
}

/// Runs in every child, on its one thread, before `fork` returns there.
unsafe extern "C" fn child() {
    generation::advance();
    owner_slot::clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_made_is_its_own() {
        let unknown = ProcessGuard::unknown();
        assert!(!unknown.is_inherited() && !ProcessGuard::here().is_inherited());
        unknown.note();
        assert!(!unknown.is_inherited() && unknown.check().is_ok());
    }

    #[test]
    fn what_another_process_made_is_inherited_and_kept() {
        let (inherited, own) = (ProcessGuard::here(), ProcessGuard::here());
        inherited.generation.store(u64::MAX, Relaxed);
        assert_eq!(inherited.check(), Err(Forked));
        inherited.note();
        assert!(inherited.is_inherited(), "it was said before");
        let (theirs, ours) = (Arc::new(()), Arc::new(()));
        inherited.keep(&theirs);
        own.keep(&ours);
        assert_eq!((Arc::strong_count(&theirs), Arc::strong_count(&ours)), (2, 1));
    }
}
