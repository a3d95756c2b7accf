//! Access to another device's memory.

use cachette_hal::{Call, ErrorKind, Ordinal, PeerAccess, Result};

use crate::checks::{check, error};
use crate::defect::Defect;
use crate::device::HostDevice;

impl HostDevice {
    pub(crate) fn peer(&self, call: Call, ordinal: Ordinal) -> Result<usize> {
        self.machine().index(ordinal).ok_or(error(call, ErrorKind::NoSuchDevice))
    }

    /// Index of another device that this one can access.
    fn reachable(&self, call: Call, ordinal: Ordinal) -> Result<usize> {
        let peer = self.peer(call, ordinal)?;
        check(peer != self.index, call, ErrorKind::InvalidValue)?;
        check(self.machine().config.peers, call, ErrorKind::Unsupported)?;
        Ok(peer)
    }
}

impl PeerAccess for HostDevice {
    fn can_reach(&self, peer: Ordinal) -> Result<bool> {
        self.enter(Call::CanReach)?;
        let peer = self.peer(Call::CanReach, peer)?;
        Ok(peer != self.index && self.machine().config.peers)
    }

    fn enable_peer(&self, peer: Ordinal) -> Result<()> {
        let call = self.enter(Call::EnablePeer)?;
        let peer = self.reachable(call, peer)?;
        let mut space = self.machine().write_space();
        let fails = self.lies(Defect::EnableTwiceFails) && space.reaches(self.index, peer);
        check(!fails, call, ErrorKind::InvalidValue)?;
        space.set_reach(self.index, peer, true);
        Ok(())
    }

    fn disable_peer(&self, peer: Ordinal) -> Result<()> {
        let call = self.enter(Call::DisablePeer)?;
        let peer = self.reachable(call, peer)?;
        let mut space = self.machine().write_space();
        space.set_reach(self.index, peer, false);
        Ok(())
    }
}
