//! Access to another device's memory.

use std::ffi::{c_int, c_uint};

use cachette_hal::{Device, Ordinal};

use crate::prelude::*;

/// The ordinal of a device in the list of the backend beneath.
fn beneath(machine: &Machine, position: usize) -> Ordinal {
    machine.devices[position].info().ordinal
}

fn can_reach(machine: &Machine, device: usize, peer: usize) -> Answer<bool> {
    machine.devices[device].peer_access().map_err(lacking)?.can_reach(beneath(machine, peer)).map_err(status_of)
}

fn pair(machine: &Machine, peer: c_int) -> Answer<(usize, usize)> {
    let (device, _) = machine.current();
    let peer = position(machine, peer)?;
    refuse_if(device == peer, INVALID_DEVICE)?;
    Ok((device, peer))
}

abi! {
    fn hipDeviceCanAccessPeer(machine; can: *mut c_int, device: c_int, peer: c_int) => can {
        let (device, peer) = (position(machine, device)?, position(machine, peer)?);
        let can = device != peer && can_reach(machine, device, peer)?;
        Ok(c_int::from(can))
    }

    fn hipDeviceEnablePeerAccess(machine; peer: c_int, flags: c_uint) {
        refuse_if(flags != 0, INVALID_VALUE)?;
        let (device, peer) = pair(machine, peer)?;
        refuse_if(!can_reach(machine, device, peer)?, PEER_ACCESS_UNSUPPORTED)?;
        refuse_if(!machine.state().peers.insert((device, peer)), PEER_ACCESS_ALREADY_ENABLED)?;
        machine.devices[device].peer_access().map_err(lacking)?.enable_peer(beneath(machine, peer)).map_err(status_of)
    }

    fn hipDeviceDisablePeerAccess(machine; peer: c_int) {
        let (device, peer) = pair(machine, peer)?;
        refuse_if(!machine.state().peers.remove(&(device, peer)), PEER_ACCESS_NOT_ENABLED)?;
        machine.devices[device].peer_access().map_err(lacking)?.disable_peer(beneath(machine, peer)).map_err(status_of)
    }
}
