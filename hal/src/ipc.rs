//! Memory shared with another process by a token.

use std::fmt::{self, Debug};

use crate::{DevicePtr, Result};

/// An allocation's name in another process; its bytes are opaque.
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

/// Memory shared with another process by a token.
pub trait Ipc: Debug + Send + Sync {
    /// Creates a token for the whole allocation that starts at `base`.
    ///
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) for an address inside an allocation, or for memory
    /// that cannot have a token (such as mapped backing).
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuIpcGetMemHandle")]
    #[doc(alias = "hipIpcGetMemHandle")]
    unsafe fn export_token(&self, base: DevicePtr) -> Result<IpcToken>;

    /// Opens a token of another process, and returns the start of its allocation.
    ///
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) for a token that is invalid, or whose allocation is
    /// gone.
    #[doc(alias = "cuIpcOpenMemHandle_v2")]
    #[doc(alias = "hipIpcOpenMemHandle")]
    fn open_token(&self, token: &IpcToken) -> Result<DevicePtr>;

    /// Closes an allocation from [`open_token`](Self::open_token).
    ///
    /// # Safety
    ///
    /// Promises 1 and 2.
    #[doc(alias = "cuIpcCloseMemHandle")]
    #[doc(alias = "hipIpcCloseMemHandle")]
    unsafe fn close_token(&self, base: DevicePtr) -> Result<()>;
}
