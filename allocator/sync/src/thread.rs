//! What the fast path asks about its thread, in one thread-local variable.
//!
//! A shared library calls a function for every thread-local variable that it reads. So there is one, not two.

#![forbid(unsafe_code)]

use std::cell::Cell;

use crate::biased_lock::OwnerSlot;
use crate::owner_slot;

struct Thread {
    slot: Cell<&'static OwnerSlot>,
    entered: Cell<usize>,
    label: Cell<u8>,
    last_heap: Cell<u32>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            slot: Cell::new(&owner_slot::NONE),
            entered: Cell::new(0),
            label: Cell::new(0),
            last_heap: Cell::new(0),
        }
    };
}

/// This thread's slot, or one that owns no lock.
#[inline(always)]
pub(crate) fn slot() -> &'static OwnerSlot {
    THREAD.with(|thread| thread.slot.get())
}

pub(crate) fn set_slot(slot: &'static OwnerSlot) {
    THREAD.with(|thread| thread.slot.set(slot));
}

/// The number of pools that this thread has entered and not left, and one more while it has a label.
#[inline(always)]
#[must_use]
pub fn entered() -> usize {
    THREAD.with(|thread| thread.entered.get())
}

/// Sets the number of pools that this thread has entered and not left.
pub fn set_entered_pools(number: usize) {
    THREAD.with(|thread| thread.entered.set(number + usize::from(thread.label.get() != 0)));
}

/// The label of this thread's memory; zero for none.
#[must_use]
pub fn label() -> u8 {
    THREAD.with(|thread| thread.label.get())
}

/// Sets the label of this thread's memory.
pub fn set_label(label: u8) {
    THREAD.with(|thread| {
        let before = thread.label.replace(label);
        let pools = thread.entered.get() - usize::from(before != 0);
        thread.entered.set(pools + usize::from(label != 0));
    });
}

/// The number of the heap that this thread last asked for raw memory, of any allocator: a guess which one it asks next,
/// and which block it frees.
#[inline(always)]
#[must_use]
pub fn last_heap() -> u32 {
    THREAD.with(|thread| thread.last_heap.get())
}

/// Sets the number of the heap that this thread last asked for raw memory.
#[inline(always)]
pub fn set_last_heap(number: u32) {
    THREAD.with(|thread| thread.last_heap.set(number));
}
