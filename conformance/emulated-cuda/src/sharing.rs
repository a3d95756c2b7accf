//! Physical memory that leaves its process, as a descriptor or by the fabric.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::fs;
use std::os::fd::{BorrowedFd, IntoRawFd};

use cachette_hal::{Backing, FabricHandle};

use crate::prelude::*;
use crate::virtual_memory::{DESCRIPTOR, FABRIC, enter, memory, physical};

/// Where the size stands in a name of the fabric.
///
/// The driver knows the size of what it named; here the end of the name tells it, which the device beneath
/// leaves zero.
const SIZE_AT: usize = 56;

/// The name that the device beneath gives, with the size at its end.
fn sized(mut name: FabricHandle, bytes: u64) -> Answer<FabricHandle> {
    refuse_if(name.0[SIZE_AT..].iter().any(|byte| *byte != 0), NOT_SUPPORTED)?;
    name.0[SIZE_AT..].copy_from_slice(&bytes.to_le_bytes());
    Ok(name)
}

/// The name as the device beneath gave it, and the size that was at its end.
fn unsized_name(mut name: FabricHandle) -> (FabricHandle, u64) {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&name.0[SIZE_AT..]);
    name.0[SIZE_AT..].fill(0);
    (name, u64::from_le_bytes(bytes))
}

/// Imports what a descriptor stands for, whose number is the pointer.
fn import_descriptor(unit: &Unit, shared: *mut c_void) -> Answer<Backing> {
    let number = c_int::try_from(shared.addr()).map_err(|_| INVALID_VALUE)?;
    // The driver knows the size of what it exported; here the file does.
    let file = fs::metadata(format!("/proc/self/fd/{number}")).map_err(|_| INVALID_VALUE)?;
    // SAFETY: it was open just now, and closing it meanwhile is the caller's to avoid.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    memory(unit)?.import_backing(descriptor, file.len()).map_err(told)
}

/// Imports what has the name that the pointer leads to.
///
/// # Safety
///
/// The pointer leads to 64 bytes.
unsafe fn import_name(unit: &Unit, shared: *const c_void) -> Answer<Backing> {
    // SAFETY: the caller's promise.
    let name = unsafe { shared.cast::<FabricHandle>().read() };
    let (name, bytes) = unsized_name(name);
    refuse_if(bytes == 0, INVALID_VALUE)?;
    memory(unit)?.import_fabric(&name, bytes).map_err(told)
}

abi! {
    fn cuMemExportToShareableHandle(shared: *mut c_void, handle: u64, kind: c_uint, flags: c_ulonglong) {
        refuse_if(shared.is_null() || flags != 0, INVALID_VALUE)?;
        let (found, unit, backing) = physical(handle)?;
        match kind {
            DESCRIPTOR => {
                // SAFETY: 1. the ledger knows the backing.
                let made = unsafe { memory(unit)?.export_backing(&backing) }.map_err(told)?;
                // SAFETY: for this kind of handle the caller has room for a descriptor.
                unsafe { put(shared.cast::<c_int>(), made.into_raw_fd()) }
            }
            FABRIC => {
                // SAFETY: 1. the ledger knows the backing.
                let made = unsafe { memory(unit)?.export_fabric(&backing) }.map_err(told)?;
                // SAFETY: for this kind of handle the caller has room for 64 bytes.
                unsafe { put(shared.cast::<FabricHandle>(), sized(made, found.bytes)?) }
            }
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuMemImportFromShareableHandle(handle: *mut u64, shared: *mut c_void, kind: c_uint) => handle {
        let unit = current()?;
        // The driver takes descriptor 0 for a null pointer.
        refuse_if(handle.is_null() || shared.is_null(), INVALID_VALUE)?;
        let made = match kind {
            DESCRIPTOR => import_descriptor(unit, shared)?,
            // SAFETY: for this kind of handle the pointer leads to 64 bytes.
            FABRIC => unsafe { import_name(unit, shared) }?,
            _ => return Err(INVALID_VALUE),
        };
        enter(unit, &made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_carries_its_size_and_is_otherwise_the_devices() {
        let mut name = FabricHandle([7; 64]);
        assert_eq!(sized(name, 4096), Err(NOT_SUPPORTED));
        name.0[SIZE_AT..].fill(0);
        let told = sized(name, 4096).unwrap();
        assert_ne!(told, name);
        assert_eq!(unsized_name(told), (name, 4096));
    }
}
