//! Failures of driver calls, by what an allocator can do about them.

use std::fmt;

/// Result of a driver call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The device, the driver or the address space has no room left for this request.
    OutOfMemory,
    /// An argument lies outside what the driver accepts.
    InvalidValue,
    /// A pointer, stream, event or other handle is not known to the driver.
    InvalidHandle,
    /// The driver shows no device with this ordinal.
    NoSuchDevice,
    /// The call is forbidden while a stream is being captured.
    CaptureForbids,
    /// The stream's capture was broken by an earlier call and gave no graph.
    CaptureBroken,
    /// The vendor, driver or device does not support the request.
    Unsupported,
    /// There is no fabric, or this process has no right to it.
    NoFabric,
    /// The operating system refused: descriptors, permissions or limits of the process.
    Refused,
    /// Work on the device accessed memory without the right to.
    Fault,
    /// The device or its context is gone; every later call fails.
    DeviceLost,
    /// The process is exiting and the driver has shut down.
    ShuttingDown,
    /// A status this crate has no name for.
    Other,
}

impl ErrorKind {
    /// Every kind, in order of declaration.
    pub const ALL: [Self; 13] = [
        Self::OutOfMemory,
        Self::InvalidValue,
        Self::InvalidHandle,
        Self::NoSuchDevice,
        Self::CaptureForbids,
        Self::CaptureBroken,
        Self::Unsupported,
        Self::NoFabric,
        Self::Refused,
        Self::Fault,
        Self::DeviceLost,
        Self::ShuttingDown,
        Self::Other,
    ];

    /// The one remedy for this kind.
    #[must_use]
    pub const fn recovery(self) -> Recovery {
        match self {
            Self::OutOfMemory => Recovery::ReleaseAndRetry,
            Self::InvalidValue | Self::InvalidHandle | Self::NoSuchDevice => Recovery::FixCaller,
            Self::CaptureForbids | Self::CaptureBroken => Recovery::RetryOutsideCapture,
            Self::Unsupported => Recovery::DoWithout,
            Self::NoFabric => Recovery::UseDescriptor,
            Self::Refused => Recovery::FixSystem,
            Self::Fault | Self::DeviceLost | Self::ShuttingDown | Self::Other => Recovery::Abandon,
        }
    }

    /// Whether no work runs on the device after this.
    #[must_use]
    pub const fn stops_work(self) -> bool {
        matches!(self, Self::Fault | Self::DeviceLost | Self::ShuttingDown)
    }

    /// The kind in words.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::OutOfMemory => "out of memory",
            Self::InvalidValue => "invalid value",
            Self::InvalidHandle => "invalid handle",
            Self::NoSuchDevice => "no such device",
            Self::CaptureForbids => "not allowed while a stream is captured",
            Self::CaptureBroken => "the capture was broken",
            Self::Unsupported => "not supported",
            Self::NoFabric => "no fabric is there, or this process may not use it",
            Self::Refused => "refused by the operating system",
            Self::Fault => "the device touched memory it may not touch",
            Self::DeviceLost => "the device is lost",
            Self::ShuttingDown => "the driver is shutting down",
            Self::Other => "unknown failure",
        }
    }
}

/// What a caller can sensibly do about an [`ErrorKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Recovery {
    /// Give memory back, then try once more.
    ReleaseAndRetry,
    /// End the capture, or switch the thread to relaxed mode, then try again.
    RetryOutsideCapture,
    /// The caller broke the contract and must be changed.
    FixCaller,
    /// Take the path that does not need it.
    DoWithout,
    /// Share the memory by a file descriptor.
    UseDescriptor,
    /// Raise a limit or grant a right outside the program.
    FixSystem,
    /// Stop using the device.
    Abandon,
}

impl Recovery {
    /// The remedy in words, as advice.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::ReleaseAndRetry => "give memory back and try again",
            Self::RetryOutsideCapture => "end the capture or use relaxed capture mode, then try again",
            Self::FixCaller => "the call was wrong; change the caller",
            Self::DoWithout => "do without it on this device",
            Self::UseDescriptor => "use a file descriptor, or give the process a channel to the fabric",
            Self::FixSystem => "raise the limit or grant the right it needs",
            Self::Abandon => "stop using the device",
        }
    }
}

/// A failed driver call: small, `Copy`, and made without allocating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    call: &'static str,
    status: Option<i32>,
}

impl Error {
    /// Describes a call that failed without a status from the driver.
    #[must_use]
    pub const fn new(kind: ErrorKind, call: &'static str) -> Self {
        Self { kind, call, status: None }
    }

    /// Describes a call that the driver answered with `status`.
    #[must_use]
    pub const fn from_status(kind: ErrorKind, call: &'static str, status: i32) -> Self {
        Self { kind, call, status: Some(status) }
    }

    /// The same failure in another class, for a call whose status has a special meaning.
    #[must_use]
    pub const fn with_kind(self, kind: ErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// The class of the failure.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The driver function that failed, by the vendor's name.
    #[must_use]
    pub const fn call(&self) -> &'static str {
        self.call
    }

    /// The vendor's own status, if the driver gave one.
    #[must_use]
    pub const fn status(&self) -> Option<i32> {
        self.status
    }

    /// The one remedy; see [`ErrorKind::recovery`].
    #[must_use]
    pub const fn recovery(&self) -> Recovery {
        self.kind.recovery()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.call, self.kind.describe())?;
        if let Some(status) = self.status {
            write!(f, " (status {status})")?;
        }
        write!(f, "; {}", self.recovery().advice())
    }
}

impl std::error::Error for Error {}

// Errors travel through the hot path's return type and must not bloat it.
const _: () = assert!(size_of::<Error>() <= 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_the_call_the_status_and_the_remedy() {
        let error = Error::from_status(ErrorKind::OutOfMemory, "cuMemAlloc_v2", 2);
        assert_eq!(error.to_string(), "cuMemAlloc_v2 failed: out of memory (status 2); give memory back and try again");
    }

    #[test]
    fn another_kind_keeps_the_call_and_the_status() {
        let error = Error::from_status(ErrorKind::InvalidHandle, "cuIpcOpenMemHandle_v2", 201);
        let error = error.with_kind(ErrorKind::InvalidValue);
        assert_eq!(error.kind(), ErrorKind::InvalidValue);
        assert_eq!(error.call(), "cuIpcOpenMemHandle_v2");
        assert_eq!(error.status(), Some(201));
    }

    #[test]
    fn every_kind_is_listed_once_and_described() {
        for (i, kind) in ErrorKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, i);
            assert!(!kind.describe().is_empty());
            assert!(!kind.recovery().advice().is_empty());
        }
    }
}
