//! The last error of a thread, for which a HIP program asks.
//!
//! The driver does not know of the calls that the front answers, and knows of calls that the program did not make. So
//! the front answers the three questions:
//!
//! * A call that the front refused is followed by one that the driver refuses, the mark. As long as the driver answers
//!   with the status of the mark, the last error is the front's. Any later call of the program changes the driver's
//!   answer as it would change the last error.
//! * A call that the front answered with success is followed by one that succeeds, where the driver may remember another
//!   status: before 7.0 the last error is the status of the last call.
//! * An error of the program that a call of Cachette has replaced is set again by the same mark.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

use cachette_hal_hip::last_error::{self, Replaced};

use crate::entry::End;
use crate::hip::Calls;
use crate::status::{DEINITIALIZED, SUCCESS, Status};

/// The first version whose last error is not the status of the last call.
pub(crate) const LAST_REAL_ERROR: c_int = 70_000_000;
/// No device.
const NOWHERE: c_int = -1;

/// Whether the program asks for the status of its last call, which few do. Relaxed: it may be late.
static ASKS_FOR_LAST_CALL: AtomicBool = AtomicBool::new(false);

/// What a thread knows beyond the driver.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// What the driver answers as long as the last error is `error`.
    mark: Status,
    /// Success if there is none, or the program has been told.
    error: Status,
    /// The same for `hipExtGetLastError`, which is told apart.
    of_last_call: Status,
}

thread_local! {
    static LAST: Cell<Last> = const { Cell::new(Last { mark: SUCCESS, error: SUCCESS, of_last_call: SUCCESS }) };
}

impl Last {
    /// The last error, where the driver answers `found`.
    const fn answer(self, found: Status) -> Status {
        if found == self.mark && self.error != SUCCESS { self.error } else { found }
    }
}

/// Ends a call of the program.
#[inline]
pub(crate) fn leave(calls: &Calls, end: End) {
    let replaced = last_error::take();
    let is_told = version(calls) < LAST_REAL_ERROR || ASKS_FOR_LAST_CALL.load(Relaxed);
    if end != End::Answered(SUCCESS) || replaced != Replaced::NOTHING || is_told {
        settle(calls, end, replaced.error);
    }
}

#[cold]
fn settle(calls: &Calls, end: End, replaced: Status) {
    match end {
        // A driver that has shut down must not be called again.
        End::Answered(DEINITIALIZED) => {}
        End::Answered(SUCCESS) | End::Left(SUCCESS) => {
            if replaced != SUCCESS {
                set(calls, LAST.get().answer(replaced));
            }
            let mut device = 0;
            // SAFETY: the driver writes one number.
            let _ = unsafe { calls.hipGetDevice(&raw mut device) };
        }
        End::Answered(status) => set(calls, status),
        End::Left(_) | End::Asked(_) => {}
    }
}

/// Makes a status the last error, and that of the last call.
fn set(calls: &Calls, status: Status) {
    // SAFETY: there is no such device, so nothing changes.
    let mark = unsafe { calls.hipSetDevice(NOWHERE) };
    LAST.set(Last { mark, error: status, of_last_call: status });
}

/// Makes a call that the program did not make. Its failure is not the program's.
pub(crate) fn quietly(calls: &Calls, call: impl FnOnce() -> Status) -> Status {
    let before = if version(calls) < LAST_REAL_ERROR {
        SUCCESS
    } else {
        // SAFETY: it takes nothing.
        unsafe { calls.hipPeekAtLastError() }
    };
    let status = call();
    if status != SUCCESS && status != DEINITIALIZED {
        // SAFETY: it takes nothing.
        let _ = unsafe { calls.hipGetLastError() };
        last_error::replace(before);
    }
    status
}

/// Answers `hipGetLastError`.
pub(crate) fn get(calls: &Calls) -> Status {
    let last = LAST.get();
    LAST.set(Last { error: SUCCESS, ..last });
    // SAFETY: it takes nothing.
    last.answer(unsafe { calls.hipGetLastError() })
}

/// Answers `hipPeekAtLastError`, which counts as a call.
pub(crate) fn peek(calls: &Calls) -> Status {
    let last = LAST.get();
    LAST.set(Last { of_last_call: last.error, ..last });
    // SAFETY: it takes nothing.
    last.answer(unsafe { calls.hipPeekAtLastError() })
}

/// Answers `hipExtGetLastError`, the status of the last call in every version.
pub(crate) fn get_of_last_call(calls: &Calls) -> Status {
    ASKS_FOR_LAST_CALL.store(true, Relaxed);
    let last = LAST.get();
    LAST.set(Last { of_last_call: SUCCESS, ..last });
    // SAFETY: it takes nothing.
    Last { error: last.of_last_call, ..last }.answer(unsafe { calls.hipExtGetLastError() })
}

/// The driver's version, as it numbers them.
#[inline]
pub(crate) fn version(calls: &Calls) -> c_int {
    /// Zero if it was not asked for. Relaxed: every thread would read the same.
    static VERSION: AtomicI32 = AtomicI32::new(0);
    match VERSION.load(Relaxed) {
        0 => {
            let mut version = 0;
            // SAFETY: the driver writes one number.
            let _ = unsafe { calls.hipRuntimeGetVersion(&raw mut version) };
            VERSION.store(version, Relaxed);
            version
        }
        known => known,
    }
}
