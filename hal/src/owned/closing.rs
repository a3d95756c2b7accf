//! Closing owners whose memory may still be in use.

use crate::{Device, Error, Result};

/// An owner that could not be closed, and why.
///
/// It still owns the memory: close it again when the cause is gone. Its drop tries once more, and leaks memory that
/// work may still use. The conversion into an [`Error`] drops the owner.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
#[must_use = "it owns what could not be closed"]
pub struct NotClosed<O> {
    /// The owner.
    pub owner: O,
    /// Why it could not be closed.
    pub error: Error,
}

impl<O> From<NotClosed<O>> for Error {
    fn from(kept: NotClosed<O>) -> Self {
        kept.error
    }
}

/// Waits until no work uses the memory of a device.
///
/// Fails if work may still run, so that the memory must not be freed. Otherwise it returns the result of the wait,
/// which is an error if the device is lost.
pub(super) fn wait_for_work<D: Device>(device: &D) -> Result<Result<()>> {
    match device.synchronize_device() {
        Err(error) if !error.kind().stops_work() => Err(error),
        waited => Ok(waited),
    }
}
