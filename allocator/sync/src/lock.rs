//! The lock of a heap. It costs no atomic exchange for a thread that uses it alone, and one for threads that share it.
//!
//! A thread holds it for some tens of instructions, and never across a driver call that can block. So a waiting thread
//! spins briefly and then yields. A release does not check for waiting threads.

use std::ptr;

use crate::ProcessGuard;
use crate::biased_lock::{Bias, BiasedLock, Contended};
use crate::spin::Spin;
use crate::{AtomicBool, AtomicPtr, AtomicU32, asymmetric_fence, generation, owner_slot, thread};

/// A mutex that is held very briefly. A child of `fork` must not wait for one of its parent, which may stay locked.
pub type Lock<T> = lock_api::Mutex<BiasedLock, T>;
/// A [`Lock`], held.
pub type LockGuard<'a, T> = lock_api::MutexGuard<'a, BiasedLock, T>;

/// Prepares biased locks; takes milliseconds the first time.
pub fn prepare() {
    if !generation::is_child() {
        asymmetric_fence::is_available();
    }
}

/// Takes a lock if this thread is its owner. It makes no call, so the caller's fast path needs none either.
#[inline(always)]
pub fn enter<T>(lock: &Lock<T>) -> Option<LockGuard<'_, T>> {
    // SAFETY: the raw lock is taken here, and only the guard releases it.
    let raw = unsafe { lock.raw() };
    raw.enter(thread::slot()).then(|| {
        // SAFETY: the lock was just taken, and it has no other guard.
        unsafe { lock.make_guard_unchecked() }
    })
}

/// Takes a lock that this thread does not own, of an object with an origin. In a forked child no thread is an owner.
/// If the origin is inherited, the lock may never be released, and the result is `None`.
#[cold]
#[inline(never)]
pub fn share<'a, T>(lock: &'a Lock<T>, origin: &ProcessGuard) -> Option<LockGuard<'a, T>> {
    share_often(lock, origin)
}

/// The same for data that threads usually share.
#[inline(never)]
pub fn share_often<'a, T>(lock: &'a Lock<T>, origin: &ProcessGuard) -> Option<LockGuard<'a, T>> {
    (!origin.is_inherited()).then(|| lock.lock())
}

// SAFETY: `BiasedLock` admits one thread at a time, and the next only after `unlock`. The same thread unlocks, since
// the guards cannot be sent.
unsafe impl lock_api::RawMutex for BiasedLock {
    const INIT: Self = Self {
        bias: Bias { biased_to: AtomicPtr::new(ptr::null_mut()), owner: AtomicPtr::new(ptr::null_mut()) },
        contended: Contended {
            spin: Spin::new(AtomicBool::new(false)),
            last: AtomicPtr::new(ptr::null_mut()),
            streak: AtomicU32::new(0),
            rebias_threshold: AtomicU32::new(0),
            crowd: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
        },
    };

    type GuardMarker = lock_api::GuardNoSend;

    #[inline(always)]
    fn lock(&self) {
        if !self.enter(thread::slot()) {
            take(self);
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // In a forked child the owner may be a thread that does not exist, and callers of `try_lock` handle `false`.
        self.enter(thread::slot()) || (!generation::is_child() && self.try_take(owner_slot::acquire()))
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        self.leave();
    }
}

#[cold]
#[inline(never)]
fn take(lock: &BiasedLock) {
    lock.take(owner_slot::acquire());
}

#[cfg(test)]
mod tests;
