//! Memory named by a token in another process.

use cachette_hal::{DevicePtr, Error, ErrorKind, Ipc, IpcToken, Result};

use crate::device::{HipDevice, address};
use crate::status::INVALID_CONTEXT;
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
        })?;
        // A token of an interior address would open at the start of the allocation.
        if start != base.address() {
            return Err(invalid);
        }
        let mut token = IpcMemHandle { reserved: [0; 64] };
        // SAFETY: 1. the caller's promise; the out-parameter outlives the call.
        self.ipc_call(call, |hip| unsafe {
            (hip.hipIpcGetMemHandle)(&raw mut token, base.address())
        })?;
        Ok(IpcToken(token.reserved))
    }

    fn open_token(&self, token: &IpcToken) -> Result<DevicePtr> {
        let call = "hipIpcOpenMemHandle";
        let token = IpcMemHandle { reserved: token.0 };
        let mut at = 0;
        // SAFETY: the out-parameter outlives the call, and the driver checks the token.
        let opened = self.ipc_call(call, |hip| unsafe {
            (hip.hipIpcOpenMemHandle)(&raw mut at, token, IPC_LAZY_ENABLE_PEER_ACCESS)
        });
        opened.map_err(|error| match error.status() {
            // This is how it refuses a token of this very process.
            Some(INVALID_CONTEXT) => {
                Error::from_status(ErrorKind::InvalidValue, call, INVALID_CONTEXT)
            }
            _ => error,
        })?;
        address(call, at)
    }

    unsafe fn close_token(&self, base: DevicePtr) -> Result<()> {
        // SAFETY: 1 and 2. The caller's promises.
        self.ipc_call("hipIpcCloseMemHandle", |hip| unsafe {
            (hip.hipIpcCloseMemHandle)(base.address())
        })
    }
}
