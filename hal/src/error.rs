//! Failures of driver calls, by their remedy.

use std::fmt;

use crate::enum_with_text::enum_with_text;

/// Result of a driver call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

enum_with_text! {
    /// The kind of failure.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ErrorKind {
        /// The device, the driver or the address space has no room left for this request.
        OutOfMemory = "out of memory",
        /// An argument is outside the range that the driver accepts.
        InvalidValue = "invalid value",
        /// The driver does not recognise a pointer, stream, event or other handle.
        InvalidHandle = "invalid handle",
        /// The driver has no device with this ordinal.
        NoSuchDevice = "no such device",
        /// The call is forbidden while a stream is being captured.
        CaptureForbids = "not allowed while a stream is captured",
        /// An earlier call broke the stream's capture, which produced no graph.
        CaptureBroken = "the capture was broken",
        /// The vendor, driver or device does not support the request.
        Unsupported = "not supported",
        /// There is no fabric, or this process has no right to it.
        NoFabric = "no NVLink fabric, or this process may not use it",
        /// The operating system refused: descriptors, permissions or limits of the process.
        Refused = "refused by the operating system",
        /// Work on the device accessed memory without the right to.
        Fault = "illegal memory access",
        /// The device or its context is gone; every later call fails.
        DeviceLost = "the device is lost",
        /// The process is exiting and the driver has shut down.
        ShuttingDown = "the driver is shutting down",
        /// A status without a name in this crate.
        Other = "unknown failure",
    }
    /// The kind as text.
    describe
}

impl ErrorKind {
    /// Returns the remedy for this kind.
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

    /// Returns whether no work runs on the device after this.
    #[must_use]
    pub const fn stops_work(self) -> bool {
        matches!(self, Self::Fault | Self::DeviceLost | Self::ShuttingDown)
    }
}

enum_with_text! {
    /// The remedy for an [`ErrorKind`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Recovery {
        /// Release memory, then try once more.
        ReleaseAndRetry = "give memory back and try again",
        /// End the capture, or switch the thread to relaxed mode, then try again.
        RetryOutsideCapture = "end the capture or use relaxed capture mode, then try again",
        /// The caller broke the contract and must be changed.
        FixCaller = "the call was wrong; change the caller",
        /// Use the path that does not need it.
        DoWithout = "do without it on this device",
        /// Share the memory by a file descriptor.
        UseDescriptor = "use a file descriptor, or give the process a channel to the fabric",
        /// Raise a limit or grant a right outside the program.
        FixSystem = "raise the limit or grant the right it needs",
        /// Stop using the device.
        Abandon = "stop using the device",
    }
    /// The remedy as text.
    advice
}

/// A failed driver call: small, `Copy`, and created without an allocation.
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

    /// Describes a call that returned `status`.
    #[must_use]
    pub const fn from_status(kind: ErrorKind, call: &'static str, status: i32) -> Self {
        Self { kind, call, status: Some(status) }
    }

    /// Returns the same failure with another kind, for a call whose status has a special meaning.
    #[must_use]
    pub const fn with_kind(self, kind: ErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// The kind of the failure.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The driver function that failed, by the vendor's name.
    #[must_use]
    pub const fn call(&self) -> &'static str {
        self.call
    }

    /// The vendor's own status, if the driver returned one.
    #[must_use]
    pub const fn status(&self) -> Option<i32> {
        self.status
    }

    /// The remedy; see [`ErrorKind::recovery`].
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
