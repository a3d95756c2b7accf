//! The owner slot of each thread: assigned with its first lock, and reused by another thread after its end.

#![forbid(unsafe_code)]

use std::sync::atomic::AtomicUsize;

use crate::biased_lock::OwnerSlot;
use crate::{Mutex, asymmetric_fence, generation, thread};

/// The slot of a thread before its first lock. It claims to be inside a lock, so the thread enters none as owner.
pub(crate) static NONE: OwnerSlot = OwnerSlot::new(AtomicUsize::new(usize::MAX));

/// Slots of threads that have ended.
///
/// The next thread inherits the locks that the slot owned. The mutex makes the writes of the last thread visible.
static SPARE: Mutex<Vec<&'static OwnerSlot>> = Mutex::new(Vec::new());

thread_local! {
    static LEASE: SlotLease = {
        let spare = SPARE.lock().pop();
        SlotLease(spare.unwrap_or_else(|| Box::leak(Box::new(OwnerSlot::new(AtomicUsize::new(0))))))
    };
}

/// Removes the slot from this thread. In a forked child it gets no other.
pub(crate) fn clear() {
    thread::set_slot(&NONE);
}

/// Returns this thread's slot, assigned now if it has none. `None` if locks have no owners, and during thread exit.
#[inline]
pub(crate) fn acquire() -> Option<&'static OwnerSlot> {
    let current = thread::slot();
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
    thread::set_slot(slot);
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
