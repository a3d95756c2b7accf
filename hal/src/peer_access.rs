//! Access to another device's memory.

use std::fmt::Debug;

use crate::{Ordinal, Result};

/// Access to memory that another device of the same vendor has allocated by [`allocate`](crate::Device::allocate).
///
/// Mapped backing is not covered: its [`set_access`](crate::VirtualMemory::set_access) names each device.
pub trait PeerAccess: Debug + Send + Sync {
    /// Whether this device can access `peer`; false for the device itself.
    #[doc(alias = "cuDeviceCanAccessPeer")]
    #[doc(alias = "hipDeviceCanAccessPeer")]
    fn can_reach(&self, peer: Ordinal) -> Result<bool>;

    /// Gives this device access to `peer`; idempotent.
    #[doc(alias = "cuCtxEnablePeerAccess")]
    #[doc(alias = "hipDeviceEnablePeerAccess")]
    fn enable_peer(&self, peer: Ordinal) -> Result<()>;

    /// Reverses [`enable_peer`](Self::enable_peer); idempotent.
    #[doc(alias = "cuCtxDisablePeerAccess")]
    #[doc(alias = "hipDeviceDisablePeerAccess")]
    fn disable_peer(&self, peer: Ordinal) -> Result<()>;
}
