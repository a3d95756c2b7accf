//! Memory of another process, opened and owned.

use crate::{Device, DevicePtr, IpcToken, Result};

/// Memory of another process, opened by its token.
#[derive(Debug)]
pub struct OpenedToken<D: Device> {
    device: D,
    base: DevicePtr,
    /// Whether [`close`](Self::close) has closed it already.
    closed: bool,
}

impl<D: Device> OpenedToken<D> {
    /// Opens `token`.
    pub fn open(device: D, token: &IpcToken) -> Result<Self> {
        let base = device.ipc()?.open_token(token)?;
        Ok(Self {
            device,
            base,
            closed: false,
        })
    }

    /// The first address of the shared allocation, in this process.
    #[must_use]
    pub const fn base(&self) -> DevicePtr {
        self.base
    }

    /// Waits for the device, closes the memory, and answers.
    pub fn close(mut self) -> Result<()> {
        self.shut()
    }

    fn shut(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        let idle = self.device.synchronize_device();
        let ipc = self.device.ipc()?;
        // SAFETY: 1. the base was opened by this owner and is closed once. 2. The device is idle, or lost.
        let closed = unsafe { ipc.close_token(self.base) };
        idle.and(closed)
    }
}

impl<D: Device> Drop for OpenedToken<D> {
    fn drop(&mut self) {
        // A destructor has nobody to tell; `close` has.
        let _ = self.shut();
    }
}
