//! Errors of the contract as the vendors' statuses.

use std::ffi::c_int;

use cachette_hal::{Error, ErrorKind, Missing};

/// The result of a function of the C interface.
pub type Status = c_int;
/// What a call came to.
pub type Answer<T = ()> = Result<T, Status>;

/// An argument is wrong.
pub const INVALID_VALUE: Status = 1;

/// Fails with a status if something is wrong with a call.
pub const fn refuse_if(wrong: bool, status: Status) -> Answer {
    if wrong { Err(status) } else { Ok(()) }
}

/// How a driver answers what the device beneath answered.
#[must_use]
pub fn status_of(error: Error) -> Status {
    match error.kind() {
        ErrorKind::OutOfMemory => 2,
        ErrorKind::InvalidValue => INVALID_VALUE,
        ErrorKind::InvalidHandle => 400,
        ErrorKind::NoSuchDevice => 101,
        ErrorKind::CaptureForbids => 900,
        ErrorKind::CaptureBroken => 901,
        ErrorKind::Unsupported => 801,
        ErrorKind::NoFabric => 800,
        ErrorKind::Refused => 304,
        ErrorKind::Fault => 700,
        ErrorKind::DeviceLost => 709,
        ErrorKind::ShuttingDown => 4,
        _ => 999,
    }
}

/// How a driver answers where the device beneath lacks a group of calls.
#[must_use]
pub fn lacking(missing: Missing) -> Status {
    status_of(missing.into())
}
