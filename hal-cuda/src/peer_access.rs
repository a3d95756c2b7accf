//! Access from one device to another's memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use cachette_hal::{Error, ErrorKind, Guarded, Ordinal, PeerAccess, Reason, Result, accept};
use cudarc::driver::sys::CUdevice;

use crate::context::Context;
use crate::device::find;
use crate::status::{PEER_ALREADY_ENABLED, PEER_NOT_ENABLED};
use crate::symbols::PeerAccessCalls;

#[derive(Debug)]
pub(crate) struct CudaPeerAccess {
    context: Arc<Context>,
    calls: PeerAccessCalls,
    /// Contexts of the accessible devices: access would end if the last user of such a context released it.
    reached: Guarded<BTreeMap<CUdevice, Arc<Context>>>,
}

impl CudaPeerAccess {
    /// Checks the requirements of the group.
    pub(crate) fn probe(context: &Arc<Context>) -> Result<Self, Reason> {
        Ok(Self { calls: context.symbols().peer_access?, context: Arc::clone(context), reached: Guarded::default() })
    }

    fn peer(&self, call: &'static str, ordinal: Ordinal) -> Result<Arc<Context>> {
        let peer = find(self.context.core(), ordinal)?;
        if peer == self.context.device {
            return Err(Error::new(ErrorKind::InvalidValue, call));
        }
        let known = self.reached.lock().get(&peer).cloned();
        match known {
            Some(context) => Ok(context),
            None => Context::retain(Arc::clone(&self.context.driver), peer),
        }
    }
}

impl PeerAccess for CudaPeerAccess {
    fn can_reach(&self, peer: Ordinal) -> Result<bool> {
        let (own, peer) = (self.context.device, find(self.context.core(), peer)?);
        if own == peer {
            return Ok(false);
        }
        let mut can = 0;
        let ask = self.calls.cuDeviceCanAccessPeer;
        // SAFETY: the driver writes one number.
        self.context.call("cuDeviceCanAccessPeer", || unsafe { ask(&raw mut can, own, peer) })?;
        Ok(can != 0)
    }

    fn enable_peer(&self, peer: Ordinal) -> Result<()> {
        let call = "cuCtxEnablePeerAccess";
        let peer = self.peer(call, peer)?;
        // SAFETY: the peer's context is retained; there are no flags.
        let enabled = self.context.call(call, || unsafe { (self.calls.cuCtxEnablePeerAccess)(peer.raw(), 0) });
        accept(PEER_ALREADY_ENABLED, enabled)?;
        self.reached.lock().insert(peer.device, peer);
        Ok(())
    }

    fn disable_peer(&self, peer: Ordinal) -> Result<()> {
        let call = "cuCtxDisablePeerAccess";
        let peer = self.peer(call, peer)?;
        // SAFETY: the peer's context is retained.
        let disabled = self.context.call(call, || unsafe { (self.calls.cuCtxDisablePeerAccess)(peer.raw()) });
        accept(PEER_NOT_ENABLED, disabled)?;
        self.reached.lock().remove(&peer.device);
        Ok(())
    }
}
