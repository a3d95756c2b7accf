//! The owner slot of each thread: assigned with its first lock, and reused by another thread after its end.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::AtomicUsize;

use crate::biased_lock::OwnerSlot;
use crate::{Mutex, asymmetric_fence, generation};

/// The slot of a thread before its first lock. It claims to be inside a lock, so the thread enters none as owner.
static NONE: OwnerSlot = OwnerSlot::new(AtomicUsize::new(usize::MAX));

/// Slots of threads that have ended.
///
/// The next thread inherits the locks that the slot owned. The mutex makes the writes of the last thread visible.
static SPARE: Mutex<Vec<&'static OwnerSlot>> = Mutex::new(Vec::new());

thread_local! {
    static CURRENT: Cell<&'static OwnerSlot> = const { Cell::new(&NONE) };
    static LEASE: SlotLease = {
        let spare = SPARE.lock().pop();
        SlotLease(spare.unwrap_or_else(|| Box::leak(Box::new(OwnerSlot::new(AtomicUsize::new(0))))))
    };
}

/// This thread's slot, or one that owns no lock.
#[inline(always)]
pub(crate) fn current() -> &'static OwnerSlot {
    CURRENT.get()
}

/// Removes the slot from this thread. In a forked child it gets no other.
pub(crate) fn clear() {
    CURRENT.set(&NONE);
}

/// Returns this thread's slot, assigned now if it has none. `None` if locks have no owners, and during thread exit.
#[inline]
pub(crate) fn acquire() -> Option<&'static OwnerSlot> {
    let current = current();
    if std::ptr::eq(current, &raw const NONE) {
        return assign();
    }
    Some(current)
}

#[cold]
fn assign() -> Option<&'static OwnerSlot> {
    // A slot of the parent may own locks that a thread was in, and the list of unused slots may stay locked.
    if generation::is_child() || !asymmetric_fence::is_available() {
        return None;
    }
    let slot = LEASE.try_with(|lease| lease.0).ok()?;
    CURRENT.set(slot);
    Some(slot)
}

/// Returns the slot of a thread for reuse when the thread ends.
struct SlotLease(&'static OwnerSlot);

impl Drop for SlotLease {
    fn drop(&mut self) {
        clear();
        if !generation::is_child() {
            SPARE.lock().push(self.0);
        }
    }
}
