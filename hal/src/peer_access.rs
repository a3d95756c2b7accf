//! One device reaching another's memory.

use std::fmt::Debug;

use crate::{Ordinal, Result};

/// One device reaching memory that another of the same vendor gave out by
/// [`allocate`](crate::Device::allocate).
///
/// Mapped backing is not covered: its [`set_access`](crate::VirtualMemory::set_access) names each device.
pub trait PeerAccess: Debug + Send + Sync {
    /// Whether this device could reach `peer`; a device does not reach itself this way.
    #[doc(alias = "cuDeviceCanAccessPeer")]
    #[doc(alias = "hipDeviceCanAccessPeer")]
    fn can_reach(&self, peer: Ordinal) -> Result<bool>;

    /// Lets this device reach `peer`; done twice, it is done once.
    #[doc(alias = "cuCtxEnablePeerAccess")]
    #[doc(alias = "hipDeviceEnablePeerAccess")]
    fn enable_peer(&self, peer: Ordinal) -> Result<()>;

    /// Undoes [`enable_peer`](Self::enable_peer); done twice, it is done once.
    #[doc(alias = "cuCtxDisablePeerAccess")]
    #[doc(alias = "hipDeviceDisablePeerAccess")]
    fn disable_peer(&self, peer: Ordinal) -> Result<()>;
}

const _: Option<&dyn PeerAccess> = None;
