//! Errors as the driver's statuses, which have the same numbers in CUDA and HIP.

use std::ffi::c_int;
use std::fmt::Display;

use cachette::hal::{self, ErrorKind};
use cachette::{Error, PointerProblem};
use cachette_process::{Error as ProcessError, FirstOnly, Panicked, write_line};

/// The result of a driver call.
pub(crate) type Status = c_int;

pub(crate) const SUCCESS: Status = 0;
pub(crate) const INVALID_VALUE: Status = 1;
pub(crate) const OUT_OF_MEMORY: Status = 2;
pub(crate) const NOT_INITIALIZED: Status = 3;
pub(crate) const DEINITIALIZED: Status = 4;
pub(crate) const INVALID_HANDLE: Status = 400;
pub(crate) const NOT_FOUND: Status = 500;
pub(crate) const NOT_SUPPORTED: Status = 801;
pub(crate) const CAPTURE_FORBIDS: Status = 900;
pub(crate) const CAPTURE_BROKEN: Status = 901;
pub(crate) const CAPTURE_UNJOINED: Status = 904;
pub(crate) const UNKNOWN: Status = 999;

/// Why the front does not answer a call with success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The driver answers it.
    Driver,
    /// It fails.
    Status(Status),
    /// It fails because there is no such stream, for which each driver has its own status.
    Stream,
    /// It asks for this status, which says nothing about the call.
    #[cfg_attr(not(feature = "hip"), expect(dead_code, reason = "only HIP has such calls"))]
    Asked(Status),
}

impl From<Error> for Refusal {
    #[cold]
    fn from(error: Error) -> Self {
        match error {
            Error::Device(error) => error.into(),
            error if error.is_out_of_memory() => Self::Status(OUT_OF_MEMORY),
            Error::UnknownStream { .. } => Self::Stream,
            // The driver has its own status for a forked child.
            Error::Forked | Error::InvalidPointer { why: PointerProblem::Foreign, .. } => Self::Driver,
            Error::InvalidPointer { .. } => {
                write_line(&error);
                Self::Status(INVALID_VALUE)
            }
            _ => {
                write_line(&error);
                Self::Status(UNKNOWN)
            }
        }
    }
}

impl From<hal::Error> for Refusal {
    #[cold]
    fn from(error: hal::Error) -> Self {
        Self::Status(error.status().unwrap_or(match error.kind() {
            ErrorKind::OutOfMemory => OUT_OF_MEMORY,
            ErrorKind::InvalidValue => INVALID_VALUE,
            ErrorKind::InvalidHandle => INVALID_HANDLE,
            ErrorKind::CaptureForbids => CAPTURE_FORBIDS,
            ErrorKind::CaptureBroken => CAPTURE_BROKEN,
            ErrorKind::Unsupported => NOT_SUPPORTED,
            ErrorKind::ShuttingDown => DEINITIALIZED,
            _ => UNKNOWN,
        }))
    }
}

impl From<ProcessError> for Refusal {
    /// Without an allocator the program keeps the driver's memory.
    #[cold]
    fn from(error: ProcessError) -> Self {
        match error {
            ProcessError::Memory(error) => error.into(),
            ProcessError::Forked => Self::Driver,
            error => {
                step_aside(error);
                Self::Driver
            }
        }
    }
}

impl From<Panicked> for Refusal {
    #[cold]
    fn from(panicked: Panicked) -> Self {
        write_line(panicked);
        Self::Status(UNKNOWN)
    }
}

/// Says once why the driver serves the program.
#[cold]
pub(crate) fn step_aside(why: impl Display) {
    static TOLD: FirstOnly = FirstOnly::new();
    TOLD.tell(format_args!("the driver serves this program instead of Cachette: {why}"));
}
