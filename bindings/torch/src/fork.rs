//! What a fork means: a driver does not survive it.

#![forbid(unsafe_code)]

use cachette::fork::ProcessGuard;

/// The process that used the driver first.
static DRIVER: ProcessGuard = ProcessGuard::unknown();

/// Notes that the driver is used from now on.
pub(crate) fn driver_is_used() {
    DRIVER.note();
}

/// Whether the driver is of no use any more, because the process was forked after its first use.
#[inline]
pub(crate) fn is_forked() -> bool {
    DRIVER.is_inherited()
}
