//! Errors of the contract as the driver's statuses.

use std::ffi::c_int;

use cachette_hal::{Error, ErrorKind, Missing};

/// What a function of the C interface answers.
pub(crate) type Status = c_int;

pub(crate) const INVALID_VALUE: Status = 1;
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
pub(crate) const NOT_PERMITTED: Status = 800;
pub(crate) const NOT_SUPPORTED: Status = 801;
pub(crate) const CAPTURE_UNSUPPORTED: Status = 900;
pub(crate) const UNKNOWN: Status = 999;

/// How the driver answers what the device beneath answered.
pub(crate) fn told(error: Error) -> Status {
    match error.kind() {
        ErrorKind::OutOfMemory => 2,
        ErrorKind::InvalidValue => INVALID_VALUE,
        ErrorKind::InvalidHandle => INVALID_HANDLE,
        ErrorKind::NoSuchDevice => INVALID_DEVICE,
        ErrorKind::CaptureForbids => CAPTURE_UNSUPPORTED,
        ErrorKind::CaptureBroken => 901,
        ErrorKind::Unsupported => NOT_SUPPORTED,
        ErrorKind::NoFabric => NOT_PERMITTED,
        ErrorKind::Refused => 304,
        ErrorKind::Fault => 700,
        // What the driver answers in a forked child, where a device of host memory is lost too.
        ErrorKind::DeviceLost => NOT_INITIALIZED,
        ErrorKind::ShuttingDown => DEINITIALIZED,
        _ => UNKNOWN,
    }
}

/// How the driver answers where the device beneath lacks a group of calls.
pub(crate) fn absent(_: Missing) -> Status {
    NOT_SUPPORTED
}
