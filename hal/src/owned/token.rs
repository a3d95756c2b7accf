//! Memory of another process, opened and owned.

use super::closing::{closes, end_once};
use crate::{Device, DevicePtr, IpcToken, Result};

/// Memory of another process, opened by its token.
#[derive(Debug)]
pub struct OpenedToken<D: Device> {
    device: D,
    base: DevicePtr,
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

    fn shut(&mut self) -> Result<()> {
        // SAFETY: 1. the base was opened by this owner and is closed once. 2. The wait found that no work runs.
        end_once(&self.device, &mut self.closed, || unsafe { self.device.ipc()?.close_token(self.base) })
    }
}

closes! {
    /// Waits for the device, then closes the memory.
    OpenedToken<D> by shut, keeps
}
