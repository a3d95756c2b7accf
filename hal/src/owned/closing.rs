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

/// Implements `close` and the destructor of an owner by its method `$end`.
///
/// A destructor cannot return an error; `close` does. With `keeps` the error of `close` holds the owner.
macro_rules! closes {
    ($(#[$doc:meta])* $owner:ident<$($life:lifetime,)? D> by $end:ident) => {
        impl<D: crate::Device> $owner<$($life,)? D> {
            $(#[$doc])*
            pub fn close(mut self) -> crate::Result<()> {
                self.$end()
            }
        }
        $crate::owned::closing::closes!(drop $owner<$($life,)? D> by $end);
    };
    ($(#[$doc:meta])* $owner:ident<$($life:lifetime,)? D> by $end:ident, keeps) => {
        impl<D: crate::Device> $owner<$($life,)? D> {
            $(#[$doc])*
            ///
            /// On failure the error holds the owner.
            pub fn close(mut self) -> crate::Result<(), $crate::owned::NotClosed<Self>> {
                self.$end().map_err(|error| $crate::owned::NotClosed { owner: self, error })
            }
        }
        $crate::owned::closing::closes!(drop $owner<$($life,)? D> by $end);
    };
    (drop $owner:ident<$($life:lifetime,)? D> by $end:ident) => {
        impl<D: crate::Device> Drop for $owner<$($life,)? D> {
            fn drop(&mut self) {
                let _ = self.$end();
            }
        }
    };
}
pub(super) use closes;

/// Ends what work of `device` may use, once: waits for the work, and notes in `ended` that `end` succeeded.
pub(super) fn end_once<D: Device>(device: &D, ended: &mut bool, end: impl FnOnce() -> Result<()>) -> Result<()> {
    if *ended {
        return Ok(());
    }
    let waited = wait_for_work(device)?;
    let result = end();
    *ended = result.is_ok();
    waited.and(result)
}

/// Waits until no work uses the memory of a device.
///
/// Fails if work may still run, so that the memory must not be freed. Otherwise it returns the result of the wait,
/// which is an error if the device is lost.
fn wait_for_work<D: Device>(device: &D) -> Result<Result<()>> {
    match device.synchronize_device() {
        Err(error) if !error.kind().stops_work() => Err(error),
        waited => Ok(waited),
    }
}
