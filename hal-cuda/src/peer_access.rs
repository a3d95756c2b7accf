//! One device reaching another's memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cachette_hal::{Error, ErrorKind, Ordinal, PeerAccess, Reason, Result};
use cudarc::driver::sys::CUdevice;

use crate::context::Context;
use crate::device::find;
use crate::status::{PEER_ALREADY_ENABLED, PEER_NOT_ENABLED, check};
use crate::symbols::PeerAccessCalls;

/// What one device reaches.
#[derive(Debug)]
pub(crate) struct CudaPeerAccess {
    context: Arc<Context>,
    calls: PeerAccessCalls,
    /// Contexts of the devices that this one reaches: if the last user of one closed it, the access would
    /// go with it.
    reached: Mutex<BTreeMap<CUdevice, Arc<Context>>>,
}

impl CudaPeerAccess {
    /// Looks for what the group needs.
    pub(crate) fn probe(context: &Arc<Context>) -> Result<Self, Reason> {
        Ok(Self { calls: context.driver().peer_access?, context: Arc::clone(context), reached: Mutex::default() })
    }

    fn reached(&self) -> MutexGuard<'_, BTreeMap<CUdevice, Arc<Context>>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The context of another device.
    fn peer(&self, call: &'static str, ordinal: Ordinal) -> Result<Arc<Context>> {
        let peer = find(self.context.core(), ordinal)?;
        if peer == self.context.device() {
            return Err(Error::new(ErrorKind::InvalidValue, call));
        }
        let known = self.reached().get(&peer).cloned();
        match known {
            Some(context) => Ok(context),
            None => Context::retain(Arc::clone(self.context.driver()), peer),
        }
    }
}

impl PeerAccess for CudaPeerAccess {
    fn can_reach(&self, peer: Ordinal) -> Result<bool> {
        let _entered = self.context.enter()?;
        let (own, peer) = (self.context.device(), find(self.context.core(), peer)?);
        if own == peer {
            return Ok(false);
        }
        let mut can = 0;
        // SAFETY: the driver writes one number.
        let status = unsafe { (self.calls.can_reach)(&raw mut can, own, peer) };
        check("cuDeviceCanAccessPeer", status)?;
        Ok(can != 0)
    }

    fn enable_peer(&self, peer: Ordinal) -> Result<()> {
        let call = "cuCtxEnablePeerAccess";
        let peer = self.peer(call, peer)?;
        let _entered = self.context.enter()?;
        // SAFETY: the peer's context is retained; the only flag defined is none.
        let status = unsafe { (self.calls.enable)(peer.raw(), 0) };
        if status != PEER_ALREADY_ENABLED {
            check(call, status)?;
        }
        self.reached().insert(peer.device(), peer);
        Ok(())
    }

    fn disable_peer(&self, peer: Ordinal) -> Result<()> {
        let call = "cuCtxDisablePeerAccess";
        let peer = self.peer(call, peer)?;
        let _entered = self.context.enter()?;
        // SAFETY: the peer's context is retained.
        let status = unsafe { (self.calls.disable)(peer.raw()) };
        if status != PEER_NOT_ENABLED {
            check(call, status)?;
        }
        self.reached().remove(&peer.device());
        Ok(())
    }
}
