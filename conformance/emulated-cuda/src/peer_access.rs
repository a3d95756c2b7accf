//! Access to another device's memory.

use std::ffi::{c_int, c_uint, c_void};

use cachette_hal::{Device, PeerAccess};

use crate::context::unit_of;
use crate::prelude::*;

fn peers(unit: &Unit) -> Answer<&dyn PeerAccess> {
    unit.device.peer_access().map_err(lacking)
}

abi! {
    fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) => can {
        let driver = driver()?;
        let (unit, peer) = (driver.unit(device)?, driver.unit(peer)?);
        let reaches = peers(unit)?
            .can_reach(peer.device.info().ordinal)
            .map_err(told)?;
        Ok(c_int::from(reaches))
    }

    /// Lets the current device reach another; done twice, it is an error.
    fn cuCtxEnablePeerAccess(peer: *mut c_void, flags: c_uint) {
        let (unit, peer) = (current()?, unit_of(peer.addr())?);
        refuse_if(flags != 0, INVALID_VALUE)?;
        refuse_if(unit.index == peer.index, INVALID_DEVICE)?;
        let mut reached = driver()?.ledger.reached.lock();
        refuse_if(reached.contains(&(unit.index, peer.index)), PEER_ALREADY_ENABLED)?;
        peers(unit)?.enable_peer(peer.device.info().ordinal).map_err(told)?;
        reached.insert((unit.index, peer.index));
        Ok(())
    }

    /// Undoes it; done twice, it is an error.
    fn cuCtxDisablePeerAccess(peer: *mut c_void) {
        let (unit, peer) = (current()?, unit_of(peer.addr())?);
        let mut reached = driver()?.ledger.reached.lock();
        refuse_if(!reached.contains(&(unit.index, peer.index)), PEER_NOT_ENABLED)?;
        peers(unit)?.disable_peer(peer.device.info().ordinal).map_err(told)?;
        reached.remove(&(unit.index, peer.index));
        Ok(())
    }
}
