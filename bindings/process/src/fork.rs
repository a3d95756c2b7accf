//! Fork detection: a driver does not survive a fork.

#![forbid(unsafe_code)]

use cachette::fork::ProcessGuard;

/// The process that used the driver first.
static DRIVER: ProcessGuard = ProcessGuard::unknown();

/// Records that the driver is used from now on.
pub(crate) fn driver_is_used() {
    DRIVER.note();
}

/// Returns whether the driver is unusable because the process was forked after its first use.
#[inline]
#[must_use]
pub fn is_forked() -> bool {
    DRIVER.is_inherited()
}
