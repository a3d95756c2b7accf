//! What a fork means: nothing of the parent's can be used in the child.
//!
//! A child has the memory of its parent and one of its threads. Drivers do not survive that, and a lock that another
//! thread held at that moment is never left. So a child that asks an allocator of its parent for something is told
//! [`Error::Forked`], without a lock and without a driver call. What cannot tell of a failure does nothing and answers
//! as an allocator does that holds nothing. Freeing does nothing: the memory is the parent's, who frees it.
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
//! # How a child knows
//!
//! A handler of `pthread_atfork` runs in every child, before `fork` returns there. It does two things. It counts, so
//! that whatever knows its [`ProcessGuard`] sees that it is inherited. And it takes the badge of the thread, which is all that
//! lets a thread into the lock of a heap on the short way. New threads of a child get no badge either. So a request in a
//! child always comes by the long way, where the origin is looked at, and the short way does not have to know.
//!
//! An allocator that a child opens for itself works, on a device whose driver lives in the process: the host's. Its
//! locks have no owners, so a pair of allocate and free takes some nanoseconds more. Drivers of GPUs refuse a child if
//! its parent has used them.
//!
//! Handles of the parent's that are dropped in a child leave everything as it is, forever: what another thread was
//! changing at the moment of the fork must not be taken apart.
//!
//! # What is not promised
//!
//! * A child that no handler runs in is not noticed: that of `vfork`, `_Fork` or the bare system call. The one thing
//!   such a child may do is to start another program.
//! * A fork inside an allocator, by a tracker, a helper, a source or a signal handler: the child returns into the
//!   middle of the work, and may wait there for a thread that it does not have.
//! * Locks outside allocators.
//!
//! A child of a child is a child of both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
        let here = generation::current();
        let _ = self.generation.compare_exchange(0, here, Relaxed, Relaxed);
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
        if self.is_inherited() {
            return Err(Error::Forked);
        }
        Ok(())
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
    use std::sync::atomic::{AtomicBool, Ordering};

    static WATCHED: AtomicBool = AtomicBool::new(false);
    // Acquire, with the release below: who sees that the handler is there may fork.
    if WATCHED.load(Ordering::Acquire) {
        return;
    }
    // It fails for want of memory alone; then a child finds out from its driver.
    // SAFETY: the handler is a function of this library, and touches nothing but a number and a thread's badge.
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
