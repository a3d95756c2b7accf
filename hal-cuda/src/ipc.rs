//! Memory shared with another process by a token.

use std::ffi::c_char;
use std::sync::Arc;

use cachette_hal::{DevicePtr, Error, ErrorKind, Ipc, IpcToken, Reason, Recovery, Result};
use cudarc::driver::sys::{CUipcMem_flags, CUipcMemHandle};

use crate::context::{Context, Group};
use crate::device::device_ptr;
use crate::probe::Property;
use crate::status::check;
use crate::symbols::IpcCalls;

pub(crate) type CudaIpc = Group<IpcCalls>;

impl CudaIpc {
    /// Checks the requirements of the group.
    pub(crate) fn probe(context: &Arc<Context>) -> Result<Self, Reason> {
        let calls = context.symbols().ipc?;
        Property::IPC.need(context.core(), context.device)?;
        Ok(Self { context: Arc::clone(context), calls })
    }

    fn base(&self, at: DevicePtr) -> Result<u64> {
        let (mut base, mut bytes) = (0, 0);
        // SAFETY: the driver writes an address and a size.
        let status = unsafe { (self.calls.cuMemGetAddressRange_v2)(&raw mut base, &raw mut bytes, at.address()) };
        check("cuMemGetAddressRange_v2", status)?;
        Ok(base)
    }
}

impl Ipc for CudaIpc {
    unsafe fn export_token(&self, base: DevicePtr) -> Result<IpcToken> {
        let call = "cuIpcGetMemHandle";
        let _entered = self.context.enter()?;
        // The driver would export the whole allocation, and the importer would not have the offset.
        if self.base(base).map_err(nameless)? != base.address() {
            return Err(Error::new(ErrorKind::InvalidValue, call));
        }
        let mut token = CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: 1. is the caller's promise; the driver writes one token.
        let status = unsafe { (self.calls.cuIpcGetMemHandle)(&raw mut token, base.address()) };
        check(call, status).map_err(nameless)?;
        Ok(IpcToken(token.reserved.map(|byte| byte.to_ne_bytes()[0])))
    }

    fn open_token(&self, token: &IpcToken) -> Result<DevicePtr> {
        let call = "cuIpcOpenMemHandle_v2";
        let token = CUipcMemHandle { reserved: token.0.map(|byte| c_char::from_ne_bytes([byte])) };
        let flags = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        let mut at = 0;
        let open = self.calls.cuIpcOpenMemHandle_v2;
        // SAFETY: the driver checks the token, and writes one address.
        let answer = self.context.call(call, || unsafe { open(&raw mut at, token, flags) });
        answer.map_err(refused)?;
        device_ptr(call, at)
    }

    unsafe fn close_token(&self, base: DevicePtr) -> Result<()> {
        // SAFETY: 1. and 2. are the caller's promises.
        self.context.call("cuIpcCloseMemHandle", || unsafe { (self.calls.cuIpcCloseMemHandle)(base.address()) })
    }
}

/// The error of an export whose memory has no token: mapped backing, memory of a pool, or none.
fn nameless(error: Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidHandle | ErrorKind::Unsupported => error.with_kind(ErrorKind::InvalidValue),
        _ => error,
    }
}

/// The error of an open that failed because of the token.
///
/// The driver's status is an invalid context for a token of this process, and a failed map if the memory is gone. For
/// a forged token it is one of these, or an invalid value.
fn refused(error: Error) -> Error {
    let by_token =
        matches!(error.kind(), ErrorKind::Other | ErrorKind::NoSuchDevice) || error.recovery() == Recovery::FixCaller;
    if by_token {
        return error.with_kind(ErrorKind::InvalidValue);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_token_is_an_invalid_value() {
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
