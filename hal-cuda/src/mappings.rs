//! Calls that change what is mapped where: one at a time, and again where the driver fails without a reason.
//!
//! While another thread copies from or to a backing, `cuMemMap` and `cuMemSetAccess` of the same backing at other
//! addresses now and then answer with an unknown error (999), if the backing was made for network cards. From then on
//! the driver does not map that backing a second time: on an H200 with driver 580 not for two seconds, nor after the
//! device was idle, while other backings could be mapped at the same place. Once the backing is unmapped where it was
//! in use, the call succeeds. One call at a time makes it rare: 2 % of the calls of eight threads that did nothing
//! else, and then less than one in a thousand.
//!
//! So a call is made again for a moment, in which another thread may unmap the backing, and then refused as something
//! that the driver does not do.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use cachette_hal::{ErrorKind, Result};

use crate::status::{UNKNOWN, check, retold};
use crate::types::Status;

/// How often a call is made again at once, and how often in all.
const AT_ONCE: u32 = 3;
const TRIES: u32 = 12;
/// How long is waited before each later try; 2 ms in all.
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

/// Makes a call alone, and again for a moment while it fails without a reason. Others get their turn between two tries.
pub(crate) fn patiently(call: &'static str, act: impl Fn() -> Status) -> Result<()> {
    for tries in 1.. {
        let status = {
            let _alone = alone();
            act()
        };
        if status != UNKNOWN {
            return check(call, status);
        }
        if tries == TRIES {
            break;
        }
        if tries > AT_ONCE {
            thread::sleep(PAUSE);
        }
    }
    check(call, UNKNOWN).map_err(|error| retold(error, ErrorKind::Unsupported))
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
            if made.get() <= failures { UNKNOWN } else { status }
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
    fn what_keeps_failing_for_no_reason_is_not_supported() {
        let (result, made) = after(u32::MAX, 0);
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.status(), made), (ErrorKind::Unsupported, Some(UNKNOWN), TRIES));
    }
}
