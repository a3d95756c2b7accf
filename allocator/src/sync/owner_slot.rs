//! Which badge a thread has: one from its first lock to its end, and then another thread's.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::fork;
use crate::sync::asymmetric_fence;
use crate::sync::biased_lock::OwnerSlot;

/// What a thread has before its first lock: it seems to be inside some lock, and so enters none as its owner.
static NONE: OwnerSlot = OwnerSlot::new(AtomicUsize::new(usize::MAX));

/// Badges of threads that have ended.
///
/// The next thread inherits the locks that the badge's last bearer owned; the mutex lets it see what that one did.
static SPARE: Mutex<Vec<&'static OwnerSlot>> = Mutex::new(Vec::new());

thread_local! {
    static MINE: Cell<&'static OwnerSlot> = const { Cell::new(&NONE) };
    static LOAN: Loan = Loan::begin();
}

/// This thread's badge, or one that opens nothing.
#[inline(always)]
pub(crate) fn worn() -> &'static OwnerSlot {
    MINE.get()
}

/// Leaves this thread without its badge; in a forked child, where it gets no other.
pub(crate) fn take_off() {
    MINE.set(&NONE);
}

/// This thread's badge, given to it now if need be; `None` where no lock has an owner, and in a thread that ends.
#[inline]
pub(crate) fn mine() -> Option<&'static OwnerSlot> {
    let worn = worn();
    if std::ptr::eq(worn, &raw const NONE) {
        return receive();
    }
    Some(worn)
}

#[cold]
fn receive() -> Option<&'static OwnerSlot> {
    // A badge of the parent's may own locks that a thread was in; the list of spare ones may be locked for ever.
    if fork::is_child() || !asymmetric_fence::is_available() {
        return None;
    }
    LOAN.try_with(|loan| {
        MINE.set(loan.badge);
        loan.badge
    })
    .ok()
}

/// The time a thread has its badge.
struct Loan {
    badge: &'static OwnerSlot,
}

impl Loan {
    fn begin() -> Self {
        let spare = spare().pop();
        let badge = spare.unwrap_or_else(|| Box::leak(Box::new(OwnerSlot::new(AtomicUsize::new(0)))));
        Self { badge }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        take_off();
        if !fork::is_child() {
            spare().push(self.badge);
        }
    }
}

fn spare() -> MutexGuard<'static, Vec<&'static OwnerSlot>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}
