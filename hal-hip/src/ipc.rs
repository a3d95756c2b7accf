//! Memory shared with another process by a token.

use std::sync::Arc;

use cachette_hal::{DevicePtr, Error, ErrorKind, Ipc, IpcToken, Reason, Recovery, Result};

use crate::context::{Context, Group};
use crate::device::device_ptr;
use crate::symbols::IpcCalls;
use crate::types::{IPC_LAZY_ENABLE_PEER_ACCESS, IpcMemHandle};

pub(crate) type HipIpc = Group<IpcCalls>;

impl HipIpc {
    /// The group, if the library has its functions.
    pub(crate) fn probe(context: &Arc<Context>) -> Result<Self, Reason> {
        context.symbols().addresses?;
        Self::new(context, context.symbols().ipc)
    }

    fn base(&self, at: DevicePtr) -> Result<u64> {
        self.context.address_range(at.address()).map(|(base, _)| base)
    }
}

impl Ipc for HipIpc {
    unsafe fn export_token(&self, base: DevicePtr) -> Result<IpcToken> {
        let call = "hipIpcGetMemHandle";
        // For mapped memory, drivers up to 7.2 crash the kernel. For an interior address the driver would export the
        // whole allocation, and the importer would not have the offset.
        let is_mapped = self.context.driver.ledger.holds(base.address());
        if is_mapped || self.base(base).map_err(refused)? != base.address() {
            return Err(Error::new(ErrorKind::InvalidValue, call));
        }
        let mut token = IpcMemHandle { reserved: [0; 64] };
        let export = self.calls.hipIpcGetMemHandle;
        // SAFETY: 1. is the caller's promise; the driver writes one token.
        let answer = self.context.call(call, || unsafe { export(&raw mut token, base.address()) });
        answer.map_err(refused)?;
        Ok(IpcToken(token.reserved))
    }

    fn open_token(&self, token: &IpcToken) -> Result<DevicePtr> {
        let call = "hipIpcOpenMemHandle";
        let token = IpcMemHandle { reserved: token.0 };
        let mut at = 0;
        let open = self.calls.hipIpcOpenMemHandle;
        // SAFETY: the driver checks the token, and writes one address.
        let answer = self.context.call(call, || unsafe { open(&raw mut at, token, IPC_LAZY_ENABLE_PEER_ACCESS) });
        answer.map_err(refused)?;
        device_ptr(call, at)
    }

    unsafe fn close_token(&self, base: DevicePtr) -> Result<()> {
        // SAFETY: 1. and 2. are the caller's promises.
        self.context.call("hipIpcCloseMemHandle", || unsafe { (self.calls.hipIpcCloseMemHandle)(base.address()) })
    }
}

/// The error of a call that failed because of the memory or the token.
///
/// The driver's status is an invalid context for a token of this process. For memory without a token, or a token
/// without memory, it is an invalid pointer.
fn refused(error: Error) -> Error {
    match error.status() {
        Some(_) if error.recovery() == Recovery::FixCaller => error.with_kind(ErrorKind::InvalidValue),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::kind_of;

    #[test]
    fn a_refused_token_keeps_the_call_and_the_status() {
        let call = "hipIpcOpenMemHandle";
        for status in [1, 17, 101, 201, 400] {
            let error = refused(Error::from_status(kind_of(status), call, status));
            assert_eq!(error.kind(), ErrorKind::InvalidValue, "{status}");
            assert_eq!((error.call(), error.status()), (call, Some(status)));
        }
        for (status, kind) in [(2, ErrorKind::OutOfMemory), (700, ErrorKind::Fault)] {
            let error = refused(Error::from_status(kind_of(status), call, status));
            assert_eq!(error.kind(), kind);
        }
    }
}
