//! Memory named by a token in another process.

use std::fmt::{self, Debug};

use crate::{DevicePtr, Result};

/// An allocation's name in another process; its bytes mean something to the driver alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct IpcToken(pub [u8; 64]);

impl Debug for IpcToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IpcToken(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// Memory named by a token in another process.
pub trait Ipc: Debug + Send + Sync {
    /// Names the whole allocation that starts at `base`.
    ///
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) for an address inside an allocation,
    /// or for memory that has no token (such as mapped backing).
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuIpcGetMemHandle")]
    #[doc(alias = "hipIpcGetMemHandle")]
    unsafe fn export_token(&self, base: DevicePtr) -> Result<IpcToken>;

    /// Opens a token of another process, giving the start of its allocation.
    ///
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) for a token whose allocation is gone, or that no
    /// driver made.
    #[doc(alias = "cuIpcOpenMemHandle_v2")]
    #[doc(alias = "hipIpcOpenMemHandle")]
    fn open_token(&self, token: &IpcToken) -> Result<DevicePtr>;

    /// Closes what [`open_token`](Self::open_token) gave.
    ///
    /// # Safety
    ///
    /// Promises 1 and 2.
    #[doc(alias = "cuIpcCloseMemHandle")]
    #[doc(alias = "hipIpcCloseMemHandle")]
    unsafe fn close_token(&self, base: DevicePtr) -> Result<()>;
}

const _: Option<&dyn Ipc> = None;
