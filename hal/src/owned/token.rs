//! Memory of another process, opened and owned.

use super::closing::{NotClosed, wait_for_work};
use crate::{Device, DevicePtr, IpcToken, Result};

/// Memory of another process, opened by its token.
#[derive(Debug)]
pub struct OpenedToken<D: Device> {
    device: D,
    base: DevicePtr,
    /// Whether the memory was closed.
    closed: bool,
}

impl<D: Device> OpenedToken<D> {
    /// Opens `token`.
    pub fn open(device: D, token: &IpcToken) -> Result<Self> {
        let base = device.ipc()?.open_token(token)?;
        Ok(Self { device, base, closed: false })
    }

    /// The first address of the shared allocation, in this process.
    #[must_use]
    pub const fn base(&self) -> DevicePtr {
        self.base
    }

    /// Waits for the device, then closes the memory.
    ///
    /// On failure the error holds the owner.
    pub fn close(mut self) -> Result<(), NotClosed<Self>> {
        match self.shut() {
            Ok(()) => Ok(()),
            Err(error) => Err(NotClosed { owner: self, error }),
        }
    }

    fn shut(&mut self) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        let waited = wait_for_work(&self.device)?;
        let ipc = self.device.ipc()?;
        // SAFETY: 1. the base was opened by this owner and is closed once. 2. The wait found that no work runs.
        let closed = unsafe { ipc.close_token(self.base) };
        self.closed = closed.is_ok();
        waited.and(closed)
    }
}

impl<D: Device> Drop for OpenedToken<D> {
    fn drop(&mut self) {
        // A destructor cannot return an error; `close` does.
        let _ = self.shut();
    }
}
