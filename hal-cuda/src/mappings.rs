//! Calls that change mappings: one at a time, and retried when the driver fails without a reason.
//!
//! While another thread copies from or to a backing that was created for network cards, `cuMemMap` and
//! `cuMemSetAccess` of the same backing at other addresses sometimes fail with an unknown error (999). From then on the
//! driver refuses to map that backing a second time. On an H200 with driver 580 this lasted more than two seconds, also
//! on an idle device, while other backings could be mapped at the same place. Once the backing is unmapped where it was
//! in use, the call succeeds. Calls one at a time make the failure rare: 2 % of the calls of eight threads that did
//! nothing else, then less than one in a thousand.
//!
//! So a call is retried briefly, because another thread may unmap the backing, and then fails as unsupported.

use std::sync::MutexGuard;
use std::thread;
use std::time::Duration;

use cachette_hal::{ErrorKind, Guarded, Result};

use crate::status::{UNKNOWN, check};
use crate::types::Status;

/// How often a call is retried at once, and how often in all.
const AT_ONCE: u32 = 3;
const TRIES: u32 = 12;
/// The pause before each later try; 2 ms in all.
const PAUSE: Duration = Duration::from_micros(200);

static ALONE: Guarded<()> = Guarded::new(());

/// Waits until no other thread changes mappings.
///
/// Called after [`Context::enter`](crate::context::Context::enter), which fails in a forked child. There the lock may
/// stay held forever.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock()
}

/// Makes a call under the lock, and retries it briefly while it fails without a reason. The lock is free between tries.
pub(crate) fn retried(call: &'static str, act: impl Fn() -> Status) -> Result<()> {
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
    check(call, UNKNOWN).map_err(|error| error.with_kind(ErrorKind::Unsupported))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The result of a call that fails `failures` times without a reason and then returns `status`, and its count.
    fn after(failures: u32, status: Status) -> (Result<()>, u32) {
        let made = Cell::new(0);
        let result = retried("cuMemMap", || {
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
    fn a_reason_is_returned_at_once() {
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
