//! An error for C: its status, its text, and the figures of an out-of-memory error.

#![forbid(unsafe_code)]

use cachette::backends::OpenError;
use cachette::config::ConfigError;
use cachette::growable::GrowableProblem;
use cachette::hal::{self, ErrorKind};
use cachette::snapshot::SaveError;
use cachette::{AddressesProblem, Error, OutOfMemory, SourceError};
use cachette_process::{self as process, StartError};
use cachette_sources::NamedError;

use crate::status::Status;

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    /// Empty if there are figures, whose text is made when it is read.
    text: String,
    figures: Option<Box<OutOfMemory>>,
}

impl Failure {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), figures: None }
    }

    /// The call was wrong.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(Status::InvalidArgument, text)
    }

    /// The parameter `name` must not be null.
    pub(crate) fn null(name: &str) -> Self {
        Self::argument(format!("`{name}` is null; pass a valid pointer"))
    }

    /// A buffer has room for `capacity` entries, and there are more.
    pub(crate) fn too_small(capacity: usize, needed: usize) -> Self {
        let text = format!("the buffer has room for {capacity} and needs {needed}; pass a larger one");
        Self::new(Status::BufferTooSmall, text)
    }

    pub(crate) const fn status(&self) -> Status {
        self.status
    }

    pub(crate) fn into_parts(self) -> (String, Option<Box<OutOfMemory>>) {
        (self.text, self.figures)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::OutOfMemory(_) | Error::OutOfPinnedMemory { .. } => Status::OutOfMemory,
            Error::TooLarge { .. } | Error::TooManyElements { .. } => Status::TooLarge,
            Error::Growable(GrowableProblem::Captured) => Status::Capture,
            Error::LengthMismatch { .. } | Error::InvalidFraction(_) | Error::Growable(_) => Status::InvalidArgument,
            Error::ForeignBuffer
            | Error::InvalidPointer { .. }
            | Error::InvalidPinnedPointer { .. }
            | Error::AddressNotFree { .. } => Status::InvalidPointer,
            Error::Addresses(why) => match **why {
                AddressesProblem::File { .. } => Status::File,
                AddressesProblem::OtherDevice { .. } | AddressesProblem::Taken { .. } => Status::Pool,
                _ => Status::InvalidArgument,
            },
            Error::Missing(_) => Status::Unsupported,
            Error::Device(error) => status_of(error.kind()),
            Error::ForeignStream | Error::UnknownStream { .. } => Status::ForeignStream,
            Error::Pool { .. } | Error::PoolCallback { .. } => Status::Pool,
            Error::Source(_) => Status::Source,
            Error::Forked => Status::Forked,
            _ => Status::Other,
        };
        match error {
            Error::OutOfMemory(figures) => Self { status, text: String::new(), figures: Some(figures) },
            error => Self::new(status, error.to_string()),
        }
    }
}

/// Declares how errors become failures with their own text: the status of each.
macro_rules! failures {
    ($($kind:ty: |$error:ident| $status:expr;)*) => {$(
        impl From<$kind> for Failure {
            fn from($error: $kind) -> Self {
                Self::new($status, $error.to_string())
            }
        }
    )*};
}

failures! {
    hal::Error: |error| status_of(error.kind());
    hal::Missing: |missing| Status::Unsupported;
    ConfigError: |error| Status::InvalidConfig;
    cachette_dlpack::Error: |error| Status::InvalidArgument;
    SourceError: |error| Status::Source;
    SaveError: |error| match &error {
        SaveError::Format { .. } => Status::InvalidArgument,
        _ => Status::File,
    };
    OpenError: |error| match &error {
        OpenError::UnknownBackend { .. } | OpenError::BadOrdinal { .. } => Status::InvalidArgument,
        OpenError::NotCompiled { .. } | OpenError::Load { .. } => Status::NoBackend,
        OpenError::NoSuchDevice { .. } | OpenError::NoneUsable { .. } => Status::NoDevice,
        OpenError::Driver { error, .. } => status_of(error.kind()),
        _ => Status::Other,
    };
}

impl From<NamedError> for Failure {
    fn from(error: NamedError) -> Self {
        match error {
            NamedError::Source(error) => error.into(),
            _ => Self::argument(error.to_string()),
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Backend(error) => error.into(),
            StartError::Config(error) => error.into(),
            StartError::NothingLoaded => Self::new(Status::NoBackend, error.to_string()),
            _ => Self::new(Status::InvalidArgument, error.to_string()),
        }
    }
}

impl From<process::Error> for Failure {
    fn from(error: process::Error) -> Self {
        let status = match error {
            process::Error::Start(error) => return error.into(),
            process::Error::Open(error) => return error.into(),
            process::Error::Memory(error) => return error.into(),
            process::Error::Forked => Status::Forked,
            process::Error::NoSuchDevice { .. } => Status::NoDevice,
            _ => Status::Other,
        };
        Self::new(status, error.to_string())
    }
}

/// The status of a failed driver call.
const fn status_of(kind: ErrorKind) -> Status {
    match kind {
        ErrorKind::OutOfMemory => Status::OutOfMemory,
        ErrorKind::InvalidValue => Status::InvalidArgument,
        ErrorKind::NoSuchDevice => Status::NoDevice,
        ErrorKind::CaptureForbids | ErrorKind::CaptureBroken => Status::Capture,
        ErrorKind::Unsupported | ErrorKind::NoFabric => Status::Unsupported,
        ErrorKind::Fault | ErrorKind::DeviceLost | ErrorKind::ShuttingDown => Status::DeviceLost,
        _ => Status::Device,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_treats_differently_has_a_status_of_its_own() {
        let expected = [
            (ErrorKind::OutOfMemory, Status::OutOfMemory),
            (ErrorKind::InvalidValue, Status::InvalidArgument),
            (ErrorKind::InvalidHandle, Status::Device),
            (ErrorKind::NoSuchDevice, Status::NoDevice),
            (ErrorKind::CaptureForbids, Status::Capture),
            (ErrorKind::CaptureBroken, Status::Capture),
            (ErrorKind::Unsupported, Status::Unsupported),
            (ErrorKind::NoFabric, Status::Unsupported),
            (ErrorKind::Refused, Status::Device),
            (ErrorKind::Fault, Status::DeviceLost),
            (ErrorKind::DeviceLost, Status::DeviceLost),
            (ErrorKind::ShuttingDown, Status::DeviceLost),
            (ErrorKind::Other, Status::Device),
        ];
        assert_eq!(expected.map(|(kind, _)| kind), ErrorKind::ALL);
        for (kind, status) in expected {
            let error = hal::Error::new(kind, "call");
            assert_eq!(Failure::from(error).status(), status, "{kind:?}");
            assert_eq!(Failure::from(Error::Device(error)).status(), status);
        }
        assert_eq!(Failure::from(Error::Forked).status(), Status::Forked);
    }
}
