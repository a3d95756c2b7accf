//! Memory named by a token in another process.

use std::ffi::c_char;
use std::sync::Arc;

use cachette_hal::{DevicePtr, Error, ErrorKind, Ipc, IpcToken, Reason, Recovery, Result};
use cudarc::driver::sys::{CUipcMem_flags, CUipcMemHandle};

use crate::context::Context;
use crate::device::device_ptr;
use crate::probe::Property;
use crate::status::{check, retold};
use crate::symbols::IpcCalls;

/// Tokens of one device's memory.
#[derive(Debug)]
pub(crate) struct CudaIpc {
    context: Arc<Context>,
    calls: IpcCalls,
}

impl CudaIpc {
    /// Looks for what the group needs.
    pub(crate) fn probe(context: &Arc<Context>) -> Result<Self, Reason> {
        let calls = context.driver().ipc?;
        Property::IPC.need(context.core(), context.device())?;
        Ok(Self { context: Arc::clone(context), calls })
    }

    /// Where the allocation begins that holds `at`.
    fn base(&self, at: DevicePtr) -> Result<u64> {
        let (mut base, mut bytes) = (0, 0);
        // SAFETY: the driver writes an address and a size.
        let status = unsafe { (self.calls.range)(&raw mut base, &raw mut bytes, at.address()) };
        check("cuMemGetAddressRange_v2", status)?;
        Ok(base)
    }
}

impl Ipc for CudaIpc {
    unsafe fn export_token(&self, base: DevicePtr) -> Result<IpcToken> {
        let call = "cuIpcGetMemHandle";
        let _entered = self.context.enter()?;
        // The driver would name the whole allocation, and whoever opens it could not know the offset.
        if self.base(base).map_err(nameless)? != base.address() {
            return Err(Error::new(ErrorKind::InvalidValue, call));
        }
        let mut token = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: 1. is the caller's promise; the driver writes one token.
        let status = unsafe { (self.calls.export)(&raw mut token, base.address()) };
        check(call, status).map_err(nameless)?;
        Ok(IpcToken(token.reserved.map(|byte| byte.to_ne_bytes()[0])))
    }

    fn open_token(&self, token: &IpcToken) -> Result<DevicePtr> {
        let call = "cuIpcOpenMemHandle_v2";
        let _entered = self.context.enter()?;
        let token = CUipcMemHandle { reserved: token.0.map(|byte| c_char::from_ne_bytes([byte])) };
        let flags = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        let mut at = 0;
        // SAFETY: the driver checks the token, and writes one address.
        let status = unsafe { (self.calls.open)(&raw mut at, token, flags) };
        check(call, status).map_err(refused)?;
        device_ptr(call, at)
    }

    unsafe fn close_token(&self, base: DevicePtr) -> Result<()> {
        let _entered = self.context.enter()?;
        // SAFETY: 1. and 2. are the caller's promises.
        let status = unsafe { (self.calls.close)(base.address()) };
        check("cuIpcCloseMemHandle", status)
    }
}

/// An export that failed because the memory has no token: mapped backing, memory of a pool, or none.
fn nameless(error: Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidHandle | ErrorKind::Unsupported => retold(error, ErrorKind::InvalidValue),
        _ => error,
    }
}

/// An open that failed because of the token.
///
/// The driver answers a token of this very process by an invalid context, one whose memory is gone by a
/// map that failed, and one that nobody made by either or by an invalid value.
fn refused(error: Error) -> Error {
    let by_token =
        matches!(error.kind(), ErrorKind::Other | ErrorKind::NoSuchDevice) || error.recovery() == Recovery::FixCaller;
    if by_token {
        return retold(error, ErrorKind::InvalidValue);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_token_is_to_blame_for_is_an_invalid_value() {
        let call = "cuIpcOpenMemHandle_v2";
        for status in [1, 101, 201, 205, 400, 999] {
            let error = refused(check(call, status).unwrap_err());
            assert_eq!(error.kind(), ErrorKind::InvalidValue, "{status}");
            assert_eq!(error.status(), Some(status));
        }
        for (status, kind) in [(2, ErrorKind::OutOfMemory), (700, ErrorKind::Fault)] {
            assert_eq!(refused(check(call, status).unwrap_err()).kind(), kind);
        }
    }
}
