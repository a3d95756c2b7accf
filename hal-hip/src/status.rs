//! The driver's statuses as errors of `cachette-hal`.

use cachette_hal::ErrorKind;

use crate::types::Status;

/// Declares statuses with their names in AMD's headers.
macro_rules! statuses {
    ($($name:ident = $value:literal, $c_name:literal;)*) => {
        $(
            #[doc = concat!("`", $c_name, "`.")]
            pub const $name: Status = $value;
        )*

        /// Every status above with its name in AMD's headers.
        #[doc(hidden)]
        pub const STATUSES: &[(&str, i64)] = &[$(($c_name, $value),)*];
    };
}

statuses! {
    SUCCESS = 0, "hipSuccess";
    INVALID_VALUE = 1, "hipErrorInvalidValue";
    OUT_OF_MEMORY = 2, "hipErrorOutOfMemory";
    NOT_INITIALIZED = 3, "hipErrorNotInitialized";
    DEINITIALIZED = 4, "hipErrorDeinitialized";
    INVALID_DEVICE_POINTER = 17, "hipErrorInvalidDevicePointer";
    PRIOR_LAUNCH_FAILURE = 53, "hipErrorPriorLaunchFailure";
    NO_DEVICE = 100, "hipErrorNoDevice";
    INVALID_DEVICE = 101, "hipErrorInvalidDevice";
    INVALID_CONTEXT = 201, "hipErrorInvalidContext";
    MAP_FAILED = 205, "hipErrorMapFailed";
    NOT_MAPPED = 211, "hipErrorNotMapped";
    ECC_NOT_CORRECTABLE = 214, "hipErrorECCNotCorrectable";
    PEER_ACCESS_UNSUPPORTED = 217, "hipErrorPeerAccessUnsupported";
    OPERATING_SYSTEM = 304, "hipErrorOperatingSystem";
    INVALID_HANDLE = 400, "hipErrorInvalidHandle";
    ILLEGAL_STATE = 401, "hipErrorIllegalState";
    NOT_FOUND = 500, "hipErrorNotFound";
    NOT_READY = 600, "hipErrorNotReady";
    ILLEGAL_ADDRESS = 700, "hipErrorIllegalAddress";
    LAUNCH_TIME_OUT = 702, "hipErrorLaunchTimeOut";
    PEER_ACCESS_ALREADY_ENABLED = 704, "hipErrorPeerAccessAlreadyEnabled";
    PEER_ACCESS_NOT_ENABLED = 705, "hipErrorPeerAccessNotEnabled";
    CONTEXT_IS_DESTROYED = 709, "hipErrorContextIsDestroyed";
    ASSERT = 710, "hipErrorAssert";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "hipErrorHostMemoryAlreadyRegistered";
    HOST_MEMORY_NOT_REGISTERED = 713, "hipErrorHostMemoryNotRegistered";
    LAUNCH_FAILURE = 719, "hipErrorLaunchFailure";
    NOT_SUPPORTED = 801, "hipErrorNotSupported";
    CAPTURE_UNSUPPORTED = 900, "hipErrorStreamCaptureUnsupported";
    CAPTURE_INVALIDATED = 901, "hipErrorStreamCaptureInvalidated";
    CAPTURE_MERGE = 902, "hipErrorStreamCaptureMerge";
    CAPTURE_UNMATCHED = 903, "hipErrorStreamCaptureUnmatched";
    CAPTURE_UNJOINED = 904, "hipErrorStreamCaptureUnjoined";
    CAPTURE_ISOLATION = 905, "hipErrorStreamCaptureIsolation";
    CAPTURE_IMPLICIT = 906, "hipErrorStreamCaptureImplicit";
    CAPTURED_EVENT = 907, "hipErrorCapturedEvent";
    CAPTURE_WRONG_THREAD = 908, "hipErrorStreamCaptureWrongThread";
    UNKNOWN = 999, "hipErrorUnknown";
    RUNTIME_MEMORY = 1052, "hipErrorRuntimeMemory";
    RUNTIME_OTHER = 1053, "hipErrorRuntimeOther";
}

/// The kind of a status; an unknown status keeps its number.
pub(crate) const fn kind_of(status: Status) -> ErrorKind {
    match status {
        OUT_OF_MEMORY | RUNTIME_MEMORY => ErrorKind::OutOfMemory,
        INVALID_VALUE
        | NOT_MAPPED
        | ILLEGAL_STATE
        | NOT_FOUND
        | HOST_MEMORY_ALREADY_REGISTERED
        | HOST_MEMORY_NOT_REGISTERED
        | CAPTURE_UNMATCHED
        | CAPTURE_WRONG_THREAD => ErrorKind::InvalidValue,
        // The last is the status for an unknown stream.
        INVALID_DEVICE_POINTER | INVALID_CONTEXT | INVALID_HANDLE | CONTEXT_IS_DESTROYED => ErrorKind::InvalidHandle,
        INVALID_DEVICE => ErrorKind::NoSuchDevice,
        CAPTURE_UNSUPPORTED | CAPTURE_MERGE | CAPTURE_ISOLATION | CAPTURE_IMPLICIT | CAPTURED_EVENT => {
            ErrorKind::CaptureForbids
        }
        CAPTURE_INVALIDATED | CAPTURE_UNJOINED => ErrorKind::CaptureBroken,
        NOT_SUPPORTED | PEER_ACCESS_UNSUPPORTED => ErrorKind::Unsupported,
        OPERATING_SYSTEM => ErrorKind::Refused,
        ILLEGAL_ADDRESS | ASSERT | LAUNCH_FAILURE | PRIOR_LAUNCH_FAILURE => ErrorKind::Fault,
        // The driver does not load without a device, so a device that is missing now was lost.
        NO_DEVICE | ECC_NOT_CORRECTABLE | LAUNCH_TIME_OUT => ErrorKind::DeviceLost,
        DEINITIALIZED => ErrorKind::ShuttingDown,
        _ => ErrorKind::Other,
    }
}

/// Whether a status of `hipInit` or `hipGetDeviceCount` means that there is no device.
pub(crate) const fn is_no_device(status: Status) -> bool {
    matches!(status, NO_DEVICE | INVALID_DEVICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_mean_what_the_headers_call_them() {
        let table = [
            (1, ErrorKind::InvalidValue),
            (2, ErrorKind::OutOfMemory),
            (4, ErrorKind::ShuttingDown),
            (17, ErrorKind::InvalidHandle),
            (100, ErrorKind::DeviceLost),
            (101, ErrorKind::NoSuchDevice),
            (400, ErrorKind::InvalidHandle),
            (700, ErrorKind::Fault),
            (709, ErrorKind::InvalidHandle),
            (719, ErrorKind::Fault),
            (801, ErrorKind::Unsupported),
            (900, ErrorKind::CaptureForbids),
            (901, ErrorKind::CaptureBroken),
            (906, ErrorKind::CaptureForbids),
            (907, ErrorKind::CaptureForbids),
            (999, ErrorKind::Other),
            (1052, ErrorKind::OutOfMemory),
            (123_456, ErrorKind::Other),
        ];
        for (status, kind) in table {
            assert_eq!(kind_of(status), kind, "status {status}");
        }
    }
}
