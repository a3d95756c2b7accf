//! Memory shared with another process by a token.

use std::ffi::c_uint;

use cachette_hal::{Device, DevicePtr, Error, ErrorKind, IpcToken};

use crate::prelude::*;

/// The status of a token that does not open.
fn refused(error: Error) -> Status {
    match error.kind() {
        ErrorKind::InvalidValue | ErrorKind::InvalidHandle => INVALID_DEVICE_POINTER,
        _ => status_of(error),
    }
}

abi! {
    fn hipIpcGetMemHandle(machine; handle: *mut IpcMemHandle, address: Address) => handle {
        if machine.state().vm.mapping_of(address).is_some() {
            if machine.personality.crashes_exporting_mapped_memory() {
                crash("hipIpcGetMemHandle of mapped memory is a bug of the kernel");
            }
            return Err(INVALID_VALUE);
        }
        // A token of an interior address names the whole allocation.
        let (start, found) = machine.state().allocation_of(address).ok_or(INVALID_VALUE)?;
        let start = DevicePtr::new(start).filter(|_| found.kind == Kind::Direct);
        let ipc = machine.devices[found.device].ipc().map_err(lacking)?;
        // SAFETY: 1. the table has it.
        let token = unsafe { ipc.export_token(start.ok_or(INVALID_VALUE)?) }.map_err(status_of)?;
        machine.state().tokens.insert(token.0);
        Ok(IpcMemHandle { reserved: token.0 })
    }

    fn hipIpcOpenMemHandle(machine; address: *mut Address, handle: IpcMemHandle, flags: c_uint) => address {
        refuse_if(flags != IPC_LAZY_ENABLE_PEER_ACCESS, INVALID_VALUE)?;
        refuse_if(machine.state().tokens.contains(&handle.reserved), INVALID_CONTEXT)?;
        let opened = machine.current().1.ipc().map_err(lacking)?.open_token(&IpcToken(handle.reserved));
        let address = opened.map_err(refused)?.address();
        machine.state().opened.insert(address);
        Ok(address)
    }

    fn hipIpcCloseMemHandle(machine; address: Address) {
        let ptr = DevicePtr::new(address).ok_or(INVALID_VALUE)?;
        let ipc = machine.current().1.ipc().map_err(lacking)?;
        // SAFETY: 1 and 2. The caller's promises.
        unsafe { ipc.close_token(ptr) }.map_err(status_of)?;
        machine.state().opened.remove(&address);
        Ok(())
    }
}
