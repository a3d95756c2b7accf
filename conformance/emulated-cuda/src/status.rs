//! Errors of the contract as the driver's statuses.

use cachette_hal::{Error, ErrorKind};

pub(crate) use cachette_emulated::{Answer, INVALID_VALUE, Status, lacking, refuse_if};

pub(crate) const NOT_INITIALIZED: Status = 3;
pub(crate) const DEINITIALIZED: Status = 4;
pub(crate) const DEVICE_UNAVAILABLE: Status = 46;
pub(crate) const NO_DEVICE: Status = 100;
pub(crate) const INVALID_DEVICE: Status = 101;
pub(crate) const INVALID_CONTEXT: Status = 201;
pub(crate) const INVALID_HANDLE: Status = 400;
pub(crate) const NOT_FOUND: Status = 500;
pub(crate) const NOT_READY: Status = 600;
pub(crate) const PEER_ALREADY_ENABLED: Status = 704;
pub(crate) const PEER_NOT_ENABLED: Status = 705;
pub(crate) const CONTEXT_IS_DESTROYED: Status = 709;
pub(crate) const NOT_SUPPORTED: Status = 801;
pub(crate) const CAPTURE_UNSUPPORTED: Status = 900;
pub(crate) const UNKNOWN: Status = 999;

/// How the driver answers what the device beneath answered.
pub(crate) fn told(error: Error) -> Status {
    match error.kind() {
        // What the driver answers in a forked child, where a device of host memory is lost too.
        ErrorKind::DeviceLost => NOT_INITIALIZED,
        _ => cachette_emulated::status_of(error),
    }
}
