//! Page-locked host memory.

use std::ffi::{c_uint, c_void};
use std::ptr::{self, NonNull};

use cachette_hal::{self as hal, Device, HostMemory};

use crate::prelude::*;

const NON_COHERENT: c_uint = 0x8000_0000;
/// Portable, mapped, write-combined, of a chosen node, coherent and not coherent.
const FLAGS: c_uint = 7 | 0x2000_0000 | HOST_MALLOC_COHERENT | NON_COHERENT;

/// Portable, mapped, of a device's registers, and read-only.
const REGISTER_FLAGS: c_uint = HOST_REGISTER_PORTABLE | HOST_REGISTER_MAPPED | 4 | 8;

/// Gives host memory back that begins at an address, or fails with `unknown`.
fn give_back(
    machine: &Machine,
    address: u64,
    unknown: Status,
    free: impl FnOnce(&dyn HostMemory) -> hal::Result<()>,
) -> Answer {
    let is_host = |kind| kind == Kind::Host;
    machine.give_back(address, is_host, unknown, |found| {
        let host = machine.devices[found.device].host_memory();
        free(host.map_err(lacking)?).map_err(status_of)
    })
}

abi! {
    fn hipHostMalloc(machine; at: *mut *mut c_void, bytes: usize, flags: c_uint) => at {
        let both = HOST_MALLOC_COHERENT | NON_COHERENT;
        refuse_if(flags & !FLAGS != 0 || flags & both == both, INVALID_VALUE)?;
        if bytes == 0 {
            return Ok(ptr::null_mut());
        }
        let (position, device) = machine.current();
        let ptr = device.host_memory().map_err(lacking)?.allocate_pinned(bytes).map_err(status_of)?;
        let allocation = Allocation { bytes: bytes as u64, device: position, kind: Kind::Host };
        machine.state().allocations.insert(ptr.as_ptr().addr() as u64, allocation);
        Ok(ptr.as_ptr().cast())
    }

    fn hipHostFree(machine; at: *mut c_void) {
        let Some(ptr) = NonNull::new(at.cast::<u8>()) else { return Ok(()) };
        let address = at.addr() as u64;
        give_back(machine, address, INVALID_VALUE, |host| {
            // SAFETY: 1. the table had it. 2. The caller's promise.
            unsafe { host.free_pinned(ptr) }
        })
    }

    fn hipHostRegister(machine; at: *mut c_void, bytes: usize, flags: c_uint) {
        let ptr = NonNull::new(at.cast::<u8>()).ok_or(INVALID_VALUE)?;
        refuse_if(bytes == 0 || flags & !REGISTER_FLAGS != 0, INVALID_VALUE)?;
        let address = at.addr() as u64;
        refuse_if(machine.state().allocation_of(address).is_some(), HOST_MEMORY_ALREADY_REGISTERED)?;
        let (position, device) = machine.current();
        let host = device.host_memory().map_err(lacking)?;
        // SAFETY: the range is valid, as the caller promises.
        unsafe { host.register(ptr, bytes) }.map_err(status_of)?;
        let allocation = Allocation { bytes: bytes as u64, device: position, kind: Kind::Host };
        machine.state().allocations.insert(address, allocation);
        Ok(())
    }

    fn hipHostUnregister(machine; at: *mut c_void) {
        let ptr = NonNull::new(at.cast::<u8>()).ok_or(INVALID_VALUE)?;
        let address = at.addr() as u64;
        give_back(machine, address, HOST_MEMORY_NOT_REGISTERED, |host| {
            // SAFETY: 1. the table had it. 2. The caller's promise.
            unsafe { host.unregister(ptr) }
        })
    }

    fn hipHostGetDevicePointer(machine; address: *mut Address, at: *mut c_void, flags: c_uint) => address {
        let ptr = NonNull::new(at.cast::<u8>()).filter(|_| flags == 0).ok_or(INVALID_VALUE)?;
        let (_, found) = machine.state().allocation_of(at.addr() as u64).ok_or(INVALID_VALUE)?;
        let host = machine.devices[found.device].host_memory().map_err(lacking)?;
        Ok(host.device_address(ptr).map_err(status_of)?.address())
    }
}
