//! Calls that change what is mapped where: one at a time, and again where the driver fails without a reason.
//!
//! While another thread copies from or to a backing, `cuMemMap` and `cuMemSetAccess` of the same backing at other
//! addresses now and then answer with an unknown error (999), if the backing was made for network cards and may be
//! shared. The same call succeeds a little later. On an H200 with driver 580 it was 2 % of the calls of eight threads
//! that did nothing else, less than one in a thousand if one thread at a time changed mappings, and every map that
//! was made again succeeded within 2 ms.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use cachette_hal::Result;

use crate::status::{UNKNOWN, check};
use crate::types::Status;

/// How often a call is made again at once, and how often in all.
const AT_ONCE: u32 = 3;
const TRIES: u32 = 200;
/// How long is waited before each later try; 40 ms in all.
const PAUSE: Duration = Duration::from_micros(200);

static ALONE: Mutex<()> = Mutex::new(());

/// Waits until no other thread changes mappings.
///
/// It comes after [`Context::enter`](crate::context::Context::enter): a forked child, which may find the lock held for
/// ever, fails there.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    // There is nothing behind it that a panic could leave half done.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a call alone, and again while it fails without a reason. Others get their turn between two tries.
pub(crate) fn patiently(call: &'static str, act: impl Fn() -> Status) -> Result<()> {
    let attempt = || {
        let _alone = alone();
        act()
    };
    for tries in 1..TRIES {
        let status = attempt();
        if status != UNKNOWN {
            return check(call, status);
        }
        if tries > AT_ONCE {
            thread::sleep(PAUSE);
        }
    }
    check(call, attempt())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// What comes of a call that fails so often for no reason and then answers `status`, and how often it was made.
    fn after(failures: u32, status: Status) -> (Result<()>, u32) {
        let made = Cell::new(0);
        let result = patiently("cuMemMap", || {
            made.set(made.get() + 1);
            if made.get() <= failures {
                UNKNOWN
            } else {
                status
            }
        });
        (result, made.get())
    }

    #[test]
    fn a_call_that_fails_for_no_reason_is_made_again() {
        for failures in [0, 1, AT_ONCE, AT_ONCE + 2] {
            assert_eq!(after(failures, 0), (Ok(()), failures + 1));
        }
    }

    #[test]
    fn a_reason_is_told_at_once() {
        let refused = check("cuMemMap", 1);
        assert_eq!(after(0, 1), (refused, 1));
        assert_eq!(after(2, 1), (refused, 3));
    }

    #[test]
    fn patience_ends() {
        assert_eq!(after(u32::MAX, 0), (check("cuMemMap", UNKNOWN), TRIES));
    }
}
