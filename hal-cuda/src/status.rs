//! The driver's statuses as errors of `cachette-hal`.

use cachette_hal::{Error, ErrorKind, Result};
use cudarc::driver::sys::cudaError_enum as Code;

use crate::types::Status;

/// The work before an event has not finished.
pub(crate) const NOT_READY: Status = Code::CUDA_ERROR_NOT_READY as Status;
/// No usable context is current.
pub(crate) const INVALID_CONTEXT: Status = Code::CUDA_ERROR_INVALID_CONTEXT as Status;
/// The driver shows no device.
pub(crate) const NO_DEVICE: Status = Code::CUDA_ERROR_NO_DEVICE as Status;
/// The driver does not support the request.
pub(crate) const NOT_SUPPORTED: Status = Code::CUDA_ERROR_NOT_SUPPORTED as Status;
/// A failure without a reason.
pub(crate) const UNKNOWN: Status = Code::CUDA_ERROR_UNKNOWN as Status;
/// The device is held by another process, or switched off for computing.
pub(crate) const DEVICE_UNAVAILABLE: Status = 46;
/// Access to the peer is already enabled.
pub(crate) const PEER_ALREADY_ENABLED: Status = Code::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as Status;
/// Access to the peer is not enabled.
pub(crate) const PEER_NOT_ENABLED: Status = Code::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED as Status;
/// A query of the default stream while a stream that waits for it is captured.
pub(crate) const CAPTURE_IMPLICIT: Status = Code::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT as Status;

/// Turns the status of `call` into a result.
pub(crate) const fn check(call: &'static str, status: Status) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    Err(Error::from_status(kind(status), call, status))
}

/// The kind of a status; an unknown status keeps its number.
const fn kind(status: Status) -> ErrorKind {
    match status {
        // INVALID_VALUE, ALREADY_MAPPED, NOT_MAPPED, ILLEGAL_STATE, PRIMARY_CONTEXT_ACTIVE,
        // HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, STREAM_CAPTURE_UNMATCHED
        1 | 208 | 211 | 401 | 708 | 712 | 713 | 903 => ErrorKind::InvalidValue,
        // OUT_OF_MEMORY, TOO_MANY_PEERS
        2 | 711 => ErrorKind::OutOfMemory,
        // DEINITIALIZED
        4 => ErrorKind::ShuttingDown,
        // NO_DEVICE, INVALID_DEVICE
        100 | 101 => ErrorKind::NoSuchDevice,
        // INVALID_CONTEXT, INVALID_HANDLE
        201 | 400 => ErrorKind::InvalidHandle,
        // STUB_LIBRARY, CALL_REQUIRES_NEWER_DRIVER, PEER_ACCESS_UNSUPPORTED, LOSSY_QUERY, NOT_FOUND,
        // NOT_SUPPORTED
        34 | 36 | 217 | 402 | 500 | 801 => ErrorKind::Unsupported,
        // DEVICE_NOT_LICENSED, OPERATING_SYSTEM, NOT_PERMITTED, SYSTEM_NOT_READY, SYSTEM_DRIVER_MISMATCH,
        // COMPAT_NOT_SUPPORTED_ON_DEVICE, and the MPS server out of reach
        102 | 304 | 800 | 802..=809 => ErrorKind::Refused,
        // ILLEGAL_ADDRESS, MISALIGNED_ADDRESS, INVALID_ADDRESS_SPACE, LAUNCH_FAILED
        700 | 716 | 717 | 719 => ErrorKind::Fault,
        // NOT_INITIALIZED (it was, so this is a forked child), DEVICE_UNAVAILABLE, ECC_UNCORRECTABLE,
        // NVLINK_UNCORRECTABLE, CONTAINED, LAUNCH_TIMEOUT, CONTEXT_IS_DESTROYED, ASSERT,
        // HARDWARE_STACK_ERROR, ILLEGAL_INSTRUCTION, INVALID_PC, MPS_CLIENT_TERMINATED, EXTERNAL_DEVICE
        3 | 46 | 214 | 220 | 226 | 702 | 709 | 710 | 714 | 715 | 718 | 810 | 911 => ErrorKind::DeviceLost,
        // STREAM_CAPTURE_UNSUPPORTED, _MERGE, _ISOLATION, _IMPLICIT, CAPTURED_EVENT, _WRONG_THREAD
        900 | 902 | 905..=908 => ErrorKind::CaptureForbids,
        // STREAM_CAPTURE_INVALIDATED, _UNJOINED
        901 | 904 => ErrorKind::CaptureBroken,
        _ => ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The statuses that matter, by cudarc's names and our kinds.
    const KNOWN: &[(Code, ErrorKind)] = &[
        (Code::CUDA_ERROR_INVALID_VALUE, ErrorKind::InvalidValue),
        (Code::CUDA_ERROR_ALREADY_MAPPED, ErrorKind::InvalidValue),
        (Code::CUDA_ERROR_NOT_MAPPED, ErrorKind::InvalidValue),
        (Code::CUDA_ERROR_ILLEGAL_STATE, ErrorKind::InvalidValue),
        (Code::CUDA_ERROR_OUT_OF_MEMORY, ErrorKind::OutOfMemory),
        (Code::CUDA_ERROR_DEINITIALIZED, ErrorKind::ShuttingDown),
        (Code::CUDA_ERROR_NOT_INITIALIZED, ErrorKind::DeviceLost),
        (Code::CUDA_ERROR_DEVICE_UNAVAILABLE, ErrorKind::DeviceLost),
        (Code::CUDA_ERROR_NO_DEVICE, ErrorKind::NoSuchDevice),
        (Code::CUDA_ERROR_INVALID_DEVICE, ErrorKind::NoSuchDevice),
        (Code::CUDA_ERROR_INVALID_CONTEXT, ErrorKind::InvalidHandle),
        (Code::CUDA_ERROR_INVALID_HANDLE, ErrorKind::InvalidHandle),
        (Code::CUDA_ERROR_ECC_UNCORRECTABLE, ErrorKind::DeviceLost),
        (Code::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, ErrorKind::Unsupported),
        (Code::CUDA_ERROR_OPERATING_SYSTEM, ErrorKind::Refused),
        (Code::CUDA_ERROR_ILLEGAL_ADDRESS, ErrorKind::Fault),
        (Code::CUDA_ERROR_LAUNCH_FAILED, ErrorKind::Fault),
        (Code::CUDA_ERROR_CONTEXT_IS_DESTROYED, ErrorKind::DeviceLost),
        (Code::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, ErrorKind::InvalidValue),
        (Code::CUDA_ERROR_NOT_SUPPORTED, ErrorKind::Unsupported),
        (Code::CUDA_ERROR_SYSTEM_NOT_READY, ErrorKind::Refused),
        (Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, ErrorKind::CaptureForbids),
        (Code::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, ErrorKind::CaptureBroken),
        (Code::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, ErrorKind::InvalidValue),
        (Code::CUDA_ERROR_STREAM_CAPTURE_UNJOINED, ErrorKind::CaptureBroken),
        (Code::CUDA_ERROR_CAPTURED_EVENT, ErrorKind::CaptureForbids),
        (Code::CUDA_ERROR_UNKNOWN, ErrorKind::Other),
    ];

    #[test]
    fn statuses_mean_what_the_driver_calls_them() {
        for (code, meant) in KNOWN {
            assert_eq!(kind(*code as Status), *meant, "{code:?}");
        }
        assert_eq!(DEVICE_UNAVAILABLE, Code::CUDA_ERROR_DEVICE_UNAVAILABLE as Status);
    }

    #[test]
    fn an_unknown_status_stays_a_number() {
        let error = check("cuMemAlloc_v2", 12_345).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Other);
        assert_eq!(error.status(), Some(12_345));
        assert_eq!(check("cuMemAlloc_v2", 0), Ok(()));
    }
}
