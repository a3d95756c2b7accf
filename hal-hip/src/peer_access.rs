//! Access from one device to another's memory.

use std::ffi::c_int;

use cachette_hal::{Error, ErrorKind, Ordinal, PeerAccess, Result, accept};

use crate::context::Group;
use crate::device::find;
use crate::status::{PEER_ACCESS_ALREADY_ENABLED, PEER_ACCESS_NOT_ENABLED};
use crate::symbols::PeerAccessCalls;

pub(crate) type HipPeerAccess = Group<PeerAccessCalls>;

impl HipPeerAccess {
    fn peer(&self, call: &'static str, ordinal: Ordinal) -> Result<c_int> {
        let peer = find(&self.context.driver, call, ordinal)?;
        if peer == self.context.device {
            return Err(Error::new(ErrorKind::InvalidValue, call));
        }
        Ok(peer)
    }
}

impl PeerAccess for HipPeerAccess {
    fn can_reach(&self, peer: Ordinal) -> Result<bool> {
        let call = "hipDeviceCanAccessPeer";
        let (own, peer) = (self.context.device, find(&self.context.driver, call, peer)?);
        let mut can = 0;
        // SAFETY: the driver writes one number.
        self.context.call(call, || unsafe { (self.calls.hipDeviceCanAccessPeer)(&raw mut can, own, peer) })?;
        Ok(can != 0 && own != peer)
    }

    fn enable_peer(&self, peer: Ordinal) -> Result<()> {
        let call = "hipDeviceEnablePeerAccess";
        let peer = self.peer(call, peer)?;
        // SAFETY: the arguments are numbers.
        let enabled = self.context.call(call, || unsafe { (self.calls.hipDeviceEnablePeerAccess)(peer, 0) });
        accept(PEER_ACCESS_ALREADY_ENABLED, enabled)
    }

    fn disable_peer(&self, peer: Ordinal) -> Result<()> {
        let call = "hipDeviceDisablePeerAccess";
        let peer = self.peer(call, peer)?;
        // SAFETY: the arguments are numbers.
        let disabled = self.context.call(call, || unsafe { (self.calls.hipDeviceDisablePeerAccess)(peer) });
        accept(PEER_ACCESS_NOT_ENABLED, disabled)
    }
}
