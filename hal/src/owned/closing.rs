//! The end of owners whose memory work may still use.

use crate::{Device, Error, Result};

/// An owner that could not be closed, and why.
///
/// It still owns what it owned: close it again when the cause is gone. Where it is dropped, it tries once more, and
/// keeps from the driver what work may still use. Turned into an [`Error`], the owner is dropped.
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
/// Fails where work may still run, so that the memory must stay. Otherwise it gives the wait's own answer, which is an
/// error if the device has stopped for good.
pub(super) fn wait_for_work<D: Device>(device: &D) -> Result<Result<()>> {
    match device.synchronize_device() {
        Err(error) if !error.kind().stops_work() => Err(error),
        waited => Ok(waited),
    }
}
