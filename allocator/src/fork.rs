//! Forks: a child process cannot use the allocators of its parent.
//!
//! A child has the memory of its parent and one of its threads. Drivers do not work after a fork, and a lock that
//! another thread held at that moment is never released. So calls of a child to an allocator of its parent return
//! [`Error::Forked`], without a lock and without a driver call. Calls that cannot return an error do nothing, and
//! return the values of an empty allocator. A free does nothing: the memory belongs to the parent, which frees it.
//!
//! ```
//! use cachette::{Allocator, Backends, Error};
//!
//! let allocator = Allocator::new(Backends::open("host")?);
//! let stream = allocator.create_stream()?;
//! match allocator.allocate(1 << 20, &stream) {
//!     Err(Error::Forked) => println!("this is a child: a new allocator is needed"),
//!     memory => drop(memory?),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How a child is detected
//!
//! A handler of `pthread_atfork` runs in every child, before `fork` returns there. It does two things. It increments
//! the generation of the process, so that every [`ProcessGuard`] of the parent reads as inherited. And it clears the
//! owner slot of the thread, without which a thread cannot enter the lock of a heap on the fast path. New threads of a
//! child get no owner slot either. So a request in a child always takes the slow path, which checks the origin. The
//! fast path needs no check.
//!
//! An allocator that a child opens works on a device whose driver is part of the process: the host device. Its locks
//! have no owners, so a pair of allocate and free takes some nanoseconds more. GPU drivers reject a child whose parent
//! has used them.
//!
//! A handle of the parent that is dropped in a child releases nothing. Another thread may have been changing the state
//! behind it at the moment of the fork.
//!
//! # What is not guaranteed
//!
//! * A child of `vfork`, `_Fork` or the bare system call is not detected, because no handler runs in it. Such a child
//!   may only start another program.
//! * A fork inside an allocator, by a tracker, a helper, a source or a signal handler: the child returns into the
//!   middle of the call, and may wait there for a thread that it does not have.
//! * Locks outside allocators.
//!
//! For a child of a child, allocators of both ancestors are inherited.

use std::sync::Arc;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::error::Error;
use crate::sync::{generation, owner_slot};

/// The process that something is of, so that a forked child knows that it is not its own.
#[derive(Debug)]
pub struct ProcessGuard {
    /// The process, as its parents count; zero for none yet.
    generation: AtomicU64,
}

impl ProcessGuard {
    /// Of no process yet.
    #[must_use]
    pub const fn unknown() -> Self {
        Self { generation: AtomicU64::new(0) }
    }

    /// This process.
    #[must_use]
    pub fn here() -> Self {
        let origin = Self::unknown();
        origin.note();
        origin
    }

    /// Says that it is this process, unless it was said before.
    pub fn note(&self) {
        watch();
        // Relaxed: a failure means that another thread, or a parent, was first.
        let _ = self.generation.compare_exchange(0, generation::current(), Relaxed, Relaxed);
    }

    /// Whether it is a process that this one was forked from.
    #[inline]
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        let generation = self.generation.load(Relaxed);
        generation != 0 && generation != generation::current()
    }

    /// Refuses what is asked of a parent's allocator.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_inherited() { Err(Error::Forked) } else { Ok(()) }
    }

    /// Keeps what is a parent's for as long as the process lives, so that dropping handles does not take it apart.
    pub(crate) fn keep<T>(&self, inherited: &Arc<T>) {
        if self.is_inherited() {
            let _ = Arc::into_raw(Arc::clone(inherited));
        }
    }
}

/// Lets every child notice that it is one.
///
/// No lock is taken for it, which a child could find held. If two threads come here at once the handler runs
/// twice, and a child is two generations away from its parent.
fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    // Acquire, with the release below: who sees that the handler is there may fork.
    if WATCHED.load(Ordering::Acquire) {
        return;
    }
    // It fails for want of memory alone; then a child finds out from its driver.
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
        assert_eq!(inherited.check(), Err(Error::Forked));
        inherited.note();
        assert!(inherited.is_inherited(), "it was said before");
        let (theirs, ours) = (Arc::new(()), Arc::new(()));
        inherited.keep(&theirs);
        own.keep(&ours);
        assert_eq!((Arc::strong_count(&theirs), Arc::strong_count(&ours)), (2, 1));
    }
}
