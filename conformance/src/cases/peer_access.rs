//! Access to another device's memory.

use cachette_hal::{Device, ErrorKind, Ordinal, PeerAccess};

use crate::rig::prelude::*;

cases! { peer_access:
    /// A device is not its own peer.
    a_device_does_not_reach_itself(PeerAccess);
    /// Asking about, enabling or disabling a device that does not exist fails.
    an_unknown_device_is_no_such_device(PeerAccess);
    /// A peer that is enabled can be enabled again, and one that is not enabled can be disabled.
    a_second_change_changes_nothing(PeerAccess).on_devices(2);
    /// A device copies from the memory of a peer it may reach.
    a_copy_from_a_peer_is_exact(PeerAccess, Transfer).on_devices(2);
    /// Enabling a peer covers memory allocated before it and after it.
    memory_allocated_before_and_after_is_reached(PeerAccess, Transfer).on_devices(2);
    /// A device copies to and from the memory of a peer, also after it was disabled and enabled again.
    it_can_be_enabled_again(PeerAccess, Transfer).on_devices(2);
    /// Enabling a device that cannot be reached fails.
    an_unreachable_device_is_refused(PeerAccess).on_devices(2);
}

const BYTES: u64 = 64 * KIB;

impl Subject {
    /// Skips the case unless the device under test can access the other one.
    pub(super) fn reachable_peer(&self) -> Verdict<&dyn PeerAccess> {
        let peers = self.device.peer_access()?;
        let (one, other) = (self.ordinal, self.other_ordinal());
        if peers.can_reach(other)? {
            Ok(peers)
        } else {
            Err(Stop::skipped(format!("device {one} cannot reach device {other}")))
        }
    }

    /// Memory of the other device with the pattern of `seed`.
    fn peer_memory(&self, seed: u64) -> Verdict<Memory> {
        let memory = Memory::allocate(self.other_device()?, BYTES)?;
        let (own, stream) = (self.memory(BYTES)?, self.stream()?);
        self.put_pattern(own.span(), seed)?;
        self.copy(memory.span(), own.span(), &stream)?;
        stream.synchronize()?;
        Ok(memory)
    }

    /// Checks memory of the other device by copying it here.
    fn expect_peer(&self, peer: &Memory, seed: u64, what: &str) -> Verdict {
        let (own, stream) = (self.filled(BYTES, 0)?, self.stream()?);
        self.copy(own.span(), peer.span(), &stream)?;
        stream.synchronize()?;
        self.expect_pattern(own.span(), seed, what)
    }
}

fn a_device_does_not_reach_itself(on: &Subject) -> Verdict {
    let reaches = on.device.peer_access()?.can_reach(on.ordinal)?;
    ensure_eq!(reaches, false, "whether it reaches itself")
}

fn an_unknown_device_is_no_such_device(on: &Subject) -> Verdict {
    let peers = on.device.peer_access()?;
    for unknown in [Ordinal(on.backend.device_count()?), Ordinal(4000)] {
        let kinds = [ErrorKind::NoSuchDevice];
        refuse(peers.can_reach(unknown), &kinds, "asking about an unknown device")?;
        refuse(peers.enable_peer(unknown), &kinds, "enabling an unknown device")?;
        refuse(peers.disable_peer(unknown), &kinds, "disabling an unknown device")?;
    }
    Ok(())
}

fn a_second_change_changes_nothing(on: &Subject) -> Verdict {
    let peers = on.reachable_peer()?;
    peers.disable_peer(on.other_ordinal())?;
    for _ in 0..3 {
        peers.enable_peer(on.other_ordinal())?;
    }
    for _ in 0..3 {
        peers.disable_peer(on.other_ordinal())?;
    }
    Ok(())
}

fn a_copy_from_a_peer_is_exact(on: &Subject) -> Verdict {
    on.reachable_peer()?.enable_peer(on.other_ordinal())?;
    let other = on.other_device()?;
    let peer = Memory::allocate(other.clone(), BYTES)?;
    let stream = Stream::create(other.clone())?;
    let transfer = other.transfer()?;
    // SAFETY: 1. the stream lives. 3. So does the memory, until the stream is synchronised.
    unsafe { transfer.fill(peer.ptr(), 7, BYTES, stream.get()) }?;
    stream.synchronize()?;
    let (own, stream) = (on.filled(BYTES, 0)?, on.stream()?);
    on.copy(own.span(), peer.span(), &stream)?;
    stream.synchronize()?;
    on.expect_byte(own.span(), 7, "what came from the peer")
}

fn memory_allocated_before_and_after_is_reached(on: &Subject) -> Verdict {
    let peers = on.reachable_peer()?;
    let other = on.other_device()?;
    let before = Memory::allocate(other.clone(), BYTES)?;
    peers.enable_peer(on.other_ordinal())?;
    let after = Memory::allocate(other, BYTES)?;
    let stream = on.stream()?;
    for (byte, memory) in [(5, &before), (6, &after)] {
        let own = on.filled(BYTES, byte)?;
        on.copy(memory.span(), own.span(), &stream)?;
        on.fill(own.span(), 0, &stream)?;
        on.copy(own.span(), memory.span(), &stream)?;
        stream.synchronize()?;
        on.expect_byte(own.span(), byte, "what went to the peer and back")?;
    }
    Ok(())
}

fn it_can_be_enabled_again(on: &Subject) -> Verdict {
    let peers = on.reachable_peer()?;
    for seed in 0..3 {
        peers.enable_peer(on.other_ordinal())?;
        let peer = on.peer_memory(seed)?;
        on.expect_peer(&peer, seed, "what went to the peer")?;
        peer.close()?;
        peers.disable_peer(on.other_ordinal())?;
    }
    Ok(())
}

fn an_unreachable_device_is_refused(on: &Subject) -> Verdict {
    let peers = on.device.peer_access()?;
    if peers.can_reach(on.other_ordinal())? {
        return Err(Stop::skipped("the devices reach each other"));
    }
    let enabled = peers.enable_peer(on.other_ordinal());
    ensure!(enabled.is_err(), "a device that cannot be reached was enabled")
}
