//! Memory shared with another process by a token.

use std::ffi::c_uint;

use cachette_hal::{Device, Ipc, IpcToken};

use crate::prelude::*;
use crate::types::Token;

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag, which must be set.
const LAZY: c_uint = 1;

fn tokens() -> Answer<&'static dyn Ipc> {
    current()?.device.ipc().map_err(lacking)
}

abi! {
    fn cuIpcGetMemHandle(token: *mut Token, at: u64) => token {
        let ipc = tokens()?;
        // The driver takes any address inside an allocation.
        let (start, _) = driver()?.ledger.range_of(at).ok_or(INVALID_VALUE)?;
        // SAFETY: 1. is the caller's promise.
        let made = unsafe { ipc.export_token(device_ptr(start)?) }.map_err(told)?;
        driver()?.ledger.tokens.lock().insert(made.0);
        Ok(Token { bytes: made.0 })
    }

    /// Opens a token of another process; one of this process is an invalid context.
    fn cuIpcOpenMemHandle_v2(at: *mut u64, token: Token, flags: c_uint) => at {
        let ipc = tokens()?;
        refuse_if(at.is_null() || flags != LAZY, INVALID_VALUE)?;
        refuse_if(driver()?.ledger.tokens.lock().contains(&token.bytes), INVALID_CONTEXT)?;
        let start = ipc.open_token(&IpcToken(token.bytes)).map_err(told)?;
        Ok(start.address())
    }

    fn cuIpcCloseMemHandle(at: u64) {
        // SAFETY: 1. and 2. are the caller's promises.
        unsafe { tokens()?.close_token(device_ptr(at)?) }.map_err(told)
    }
}
