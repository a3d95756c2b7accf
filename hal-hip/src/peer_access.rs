//! One device reaching another's memory.

use std::ffi::c_int;

use cachette_hal::{Error, ErrorKind, Ordinal, PeerAccess, Result};

use crate::device::HipDevice;
use crate::status::{PEER_ACCESS_ALREADY_ENABLED, PEER_ACCESS_NOT_ENABLED};

impl HipDevice {
    /// A device's number, if there is such a device.
    fn peer(&self, call: &'static str, peer: Ordinal) -> Result<c_int> {
        let known = peer.0 < self.driver.count()?;
        let number = c_int::try_from(peer.0).ok().filter(|_| known);
        number.ok_or(Error::new(ErrorKind::NoSuchDevice, call))
    }

    /// The number of another device.
    fn other(&self, call: &'static str, peer: Ordinal) -> Result<c_int> {
        let number = self.peer(call, peer)?;
        if number == self.unit.device {
            return Err(Error::new(ErrorKind::InvalidValue, call));
        }
        Ok(number)
    }
}

impl PeerAccess for HipDevice {
    fn can_reach(&self, peer: Ordinal) -> Result<bool> {
        let call = "hipDeviceCanAccessPeer";
        let peer = self.peer(call, peer)?;
        let mut can = 0;
        // SAFETY: the out-parameter outlives the call.
        self.call_in(&self.driver.symbols.peer_access, call, |hip| unsafe {
            (hip.hipDeviceCanAccessPeer)(&raw mut can, self.unit.device, peer)
        })?;
        Ok(can != 0 && peer != self.unit.device)
    }

    fn enable_peer(&self, peer: Ordinal) -> Result<()> {
        let call = "hipDeviceEnablePeerAccess";
        let peer = self.other(call, peer)?;
        // SAFETY: it takes numbers alone.
        let enabled = self
            .call_in(&self.driver.symbols.peer_access, call, |hip| unsafe { (hip.hipDeviceEnablePeerAccess)(peer, 0) });
        done_before(enabled, PEER_ACCESS_ALREADY_ENABLED)
    }

    fn disable_peer(&self, peer: Ordinal) -> Result<()> {
        let call = "hipDeviceDisablePeerAccess";
        let peer = self.other(call, peer)?;
        // SAFETY: it takes numbers alone.
        let disabled = self
            .call_in(&self.driver.symbols.peer_access, call, |hip| unsafe { (hip.hipDeviceDisablePeerAccess)(peer) });
        done_before(disabled, PEER_ACCESS_NOT_ENABLED)
    }
}

/// Takes the status that says it was done before for success.
fn done_before(result: Result<()>, before: c_int) -> Result<()> {
    match result {
        Err(error) if error.status() == Some(before) => Ok(()),
        result => result,
    }
}
