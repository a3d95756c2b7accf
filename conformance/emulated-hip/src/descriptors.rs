//! Physical memory that leaves its process as a descriptor.

use std::ffi::{c_int, c_ulonglong, c_void};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use cachette_hal::{Backing, Device};

use crate::prelude::*;
use crate::vm_state::{Handle, PAGE, Physical};

/// The descriptor that an import names, as this version takes it.
///
/// # Safety
///
/// The argument is a descriptor that is open, or where this version wants it a pointer to one.
unsafe fn named<'a>(machine: &Machine, shareable: *mut c_void) -> Answer<BorrowedFd<'a>> {
    let number = if machine.personality.imports_by_value() {
        // Descriptor 0 by value is a null pointer.
        refuse_if(shareable.is_null(), INVALID_VALUE)?;
        c_int::try_from(shareable.addr()).map_err(|_| INVALID_VALUE)?
    } else {
        if shareable.addr() < usize::from(u16::MAX) {
            crash("hipMemImportFromShareableHandle was given a descriptor where it wants a pointer");
        }
        // SAFETY: it is a pointer to an `int`, as the caller promises.
        unsafe { shareable.cast::<c_int>().read() }
    };
    refuse_if(number < 0, INVALID_VALUE)?;
    // SAFETY: the caller promises that it is open.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}

/// Whether a descriptor is one of physical memory; the device beneath is asked to try.
fn is_memory(machine: &Machine, descriptor: &OwnedFd) -> Answer {
    let memory = machine.current().1.virtual_memory().map_err(lacking)?;
    let size = rustix::fs::fstat(descriptor).map_err(|_| INVALID_VALUE)?.st_size;
    let size = u64::try_from(size).unwrap_or(0);
    // Some drivers' descriptors have no size; to try, any will do.
    let bytes = if size == 0 { memory.granularity().minimum } else { size };
    let tried = memory.import_backing(descriptor.as_fd(), bytes.next_multiple_of(PAGE));
    // SAFETY: 1. it was created just now, and is not used elsewhere.
    unsafe { memory.destroy_backing(tried.map_err(|_| INVALID_VALUE)?) }.map_err(status_of)
}

abi! {
    fn hipMemExportToShareableHandle(
        machine;
        shareable: *mut c_void,
        handle: BackingHandle,
        kind: c_int,
        flags: c_ulonglong,
    ) {
        // SAFETY: the caller's pointer is null, or that of an `int` as this kind wants it.
        let out = unsafe { Out::new(shareable.cast::<c_int>()) }?;
        let entry = machine.state().vm.handles.get(&handle).cloned();
        let entry = entry.filter(|entry| entry.is_shareable).ok_or(INVALID_VALUE)?;
        refuse_if(kind != MEM_HANDLE_TYPE_FILE_DESCRIPTOR || flags != 0, INVALID_VALUE)?;
        let memory = machine.devices[entry.device].virtual_memory().map_err(lacking)?;
        let descriptor = match &entry.physical {
            Physical::Made(raw) => {
                let backing = Backing::from_raw(*raw, entry.bytes);
                // SAFETY: 1. the table has it.
                unsafe { memory.export_backing(&backing) }.map_err(status_of)?
            }
            Physical::Imported(descriptor) => descriptor.try_clone().map_err(|_| UNKNOWN)?,
        };
        out.write(descriptor.into_raw_fd());
        Ok(())
    }

    fn hipMemImportFromShareableHandle(
        machine;
        handle: *mut BackingHandle,
        shareable: *mut c_void,
        kind: c_int,
    ) => handle {
        refuse_if(kind != MEM_HANDLE_TYPE_FILE_DESCRIPTOR, INVALID_VALUE)?;
        // SAFETY: the caller passes a descriptor as this version takes it.
        let named = unsafe { named(machine, shareable) }?;
        let descriptor = named.try_clone_to_owned().map_err(|_| INVALID_VALUE)?;
        is_memory(machine, &descriptor)?;
        let mut state = machine.state();
        let handle = state.handle();
        let entry = Handle {
            device: machine.current().0,
            bytes: 0,
            is_shareable: true,
            references: 1,
            physical: Physical::Imported(Arc::new(descriptor)),
        };
        state.vm.handles.insert(handle, entry);
        Ok(handle)
    }
}
