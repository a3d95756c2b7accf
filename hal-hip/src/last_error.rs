//! The thread's last error, which belongs to the program.
//!
//! A call of this crate that fails becomes the last error in place of the program's own. No call of the driver sets the
//! last error, so this crate can only clear it. A library that answers the program's questions instead of the driver
//! calls [`keep`], and gets what was replaced by [`take`].

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::status::SUCCESS;
use crate::types::Status;

/// What calls of this crate have done to a thread's last error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The program's last error that a failed call has replaced; success if there was none.
    pub error: Status,
    /// Whether a call has not succeeded, so that the driver's status of the last call may be its own.
    pub failed: bool,
}

impl Replaced {
    /// All calls have succeeded.
    pub const NOTHING: Self = Self { error: SUCCESS, failed: false };
}

/// Whether anybody asks. Relaxed: calls before the first question need not be kept.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

thread_local! {
    static REPLACED: Cell<Replaced> = const { Cell::new(Replaced::NOTHING) };
    /// The last error when the call under way began.
    static BEFORE: Cell<Status> = const { Cell::new(SUCCESS) };
}

/// Lets every thread keep what is replaced from now on, for one more driver call before each.
pub fn keep() {
    IS_KEPT.store(true, Relaxed);
}

/// What the calls of this thread have done since the last question.
#[inline]
#[must_use]
pub fn take() -> Replaced {
    REPLACED.replace(Replaced::NOTHING)
}

/// Notes a failed call of the caller's own, before which the last error was `before`.
pub fn replace(before: Status) {
    let known = REPLACED.get();
    let error = if before == SUCCESS { known.error } else { before };
    REPLACED.set(Replaced { error, failed: true });
}

/// Notes the last error before a call, which `peek` reads, if it is kept.
pub(crate) fn begin(peek: impl FnOnce() -> Status) {
    if IS_KEPT.load(Relaxed) {
        BEFORE.set(peek());
    }
}

/// Notes that the call under way has not succeeded. `is_error` says whether the driver took the status for an error.
pub(crate) fn fail(is_error: bool) {
    if IS_KEPT.load(Relaxed) {
        replace(if is_error { BEFORE.replace(SUCCESS) } else { SUCCESS });
    }
}
