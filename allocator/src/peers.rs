//! Peers: other devices that may access the memory of an allocator.

use cachette_hal::{Device, DevicePtr, Ordinal};

use crate::allocator::Allocator;
use crate::allocator::allocator_state::AllocatorState;
use crate::error::Error;
use crate::heap::Heap;

impl<D: Device> Allocator<D> {
    /// Returns whether this allocator's device can access the memory of another device of the same vendor.
    pub fn can_reach(&self, peer: Ordinal) -> Result<bool, Error> {
        Ok(self.device().peer_access()?.can_reach(peer)?)
    }

    /// Grants another device of the same vendor access to this allocator's existing and future memory. This includes
    /// chunks imported from other processes. Repeated calls have no effect.
    ///
    /// Work in streams of `peer` may then use addresses of this allocator, in kernels and in copies. The memory still
    /// belongs to its device. The caller must order this work, as for any other stream.
    ///
    /// After a failure the peer may have access to some of the memory. The call can be repeated.
    pub fn allow_peer(&self, peer: &impl Device) -> Result<(), Error> {
        let (own, other) = (self.device_info(), peer.info());
        let out_of_reach = Error::PeerOutOfReach { device: own.ordinal, peer: other.ordinal };
        if own.vendor != other.vendor || own.ordinal == other.ordinal {
            return Err(out_of_reach);
        }
        let access = peer.peer_access()?;
        if !access.can_reach(own.ordinal)? {
            return Err(out_of_reach);
        }
        let inner = self.inner();
        let _relaxed = inner.shared.relax_capture();
        access.enable_peer(own.ordinal)?;
        if self.device().virtual_memory().is_err() || !inner.shared.begin_grant(other.ordinal) {
            return Ok(());
        }
        let heaps = inner.heaps.all();
        let granted = heaps.iter().filter(|heap| heap.is_elastic()).try_for_each(|heap| inner.grant(heap));
        let granted = granted.and_then(|()| Ok(inner.ipc.grant()?));
        inner.shared.end_grant(other.ordinal, granted.is_ok());
        granted
    }
}

impl<D: Device> AllocatorState<D> {
    fn grant(&self, heap: &Heap<D>) -> Result<(), Error> {
        let memory = self.shared.device.virtual_memory()?;
        let pool = heap.pool();
        // A thread that wakes the pool or fills unmapped ranges has finished, or begins later and reads the new peers.
        let _turn = pool.as_ref().map(|pool| pool.turn()).transpose()?;
        let _growth = heap.growth.lock();
        for chunk in heap.chunks() {
            let Some(at) = DevicePtr::new(chunk.at) else { continue };
            if !self.shared.chunks.has_memory(chunk.id) {
                continue;
            }
            // SAFETY: 2. the call grants access and removes none.
            let granted = unsafe { memory.set_access(at, chunk.bytes, &self.shared.access()) };
            // An idle chunk may have moved in the meantime.
            if let Err(error) = granted
                && heap.chunks().contains(&chunk)
            {
                return Err(error.into());
            }
        }
        Ok(())
    }
}
