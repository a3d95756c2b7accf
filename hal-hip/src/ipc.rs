//! Memory named by a token in another process.

use cachette_hal::{DevicePtr, Error, ErrorKind, Ipc, IpcToken, Recovery, Result};

use crate::device::{HipDevice, address};
use crate::symbols::IpcSymbols;
use crate::types::{IPC_LAZY_ENABLE_PEER_ACCESS, IpcMemHandle, Status};

impl HipDevice {
    fn ipc_call(&self, call: &'static str, make: impl FnOnce(&IpcSymbols) -> Status) -> Result<()> {
        self.call_in(&self.driver.symbols.ipc, call, make)
    }
}

impl Ipc for HipDevice {
    unsafe fn export_token(&self, base: DevicePtr) -> Result<IpcToken> {
        let call = "hipIpcGetMemHandle";
        let invalid = Error::new(ErrorKind::InvalidValue, call);
        // Asked for mapped memory, drivers up to 7.2 bring the kernel down.
        if self.driver.ledger.holds(base.address()) {
            return Err(invalid);
        }
        let (mut start, mut bytes) = (0, 0);
        // SAFETY: 1. the caller's promise; neither out-parameter is null, and both outlive the call.
        self.ipc_call("hipMemGetAddressRange", |hip| unsafe {
            (hip.hipMemGetAddressRange)(&raw mut start, &raw mut bytes, base.address())
        })
        .map_err(refused)?;
        // A token of an interior address would open at the start of the allocation.
        if start != base.address() {
            return Err(invalid);
        }
        let mut token = IpcMemHandle { reserved: [0; 64] };
        // SAFETY: 1. the caller's promise; the out-parameter outlives the call.
        self.ipc_call(call, |hip| unsafe { (hip.hipIpcGetMemHandle)(&raw mut token, base.address()) })
            .map_err(refused)?;
        Ok(IpcToken(token.reserved))
    }

    fn open_token(&self, token: &IpcToken) -> Result<DevicePtr> {
        let call = "hipIpcOpenMemHandle";
        let token = IpcMemHandle { reserved: token.0 };
        let mut at = 0;
        // SAFETY: the out-parameter outlives the call, and the driver checks the token.
        self.ipc_call(call, |hip| unsafe {
            (hip.hipIpcOpenMemHandle)(&raw mut at, token, IPC_LAZY_ENABLE_PEER_ACCESS)
        })
        .map_err(refused)?;
        address(call, at)
    }

    unsafe fn close_token(&self, base: DevicePtr) -> Result<()> {
        // SAFETY: 1 and 2. The caller's promises.
        self.ipc_call("hipIpcCloseMemHandle", |hip| unsafe { (hip.hipIpcCloseMemHandle)(base.address()) })
    }
}

/// A refusal that the memory or the token is to blame for, with the driver's call and status.
///
/// The driver answers a token of this very process by an invalid context, and memory without a token, or a token
/// without memory, by an invalid pointer.
fn refused(error: Error) -> Error {
    match error.status() {
        Some(status) if error.recovery() == Recovery::FixCaller => {
            Error::from_status(ErrorKind::InvalidValue, error.call(), status)
        }
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
