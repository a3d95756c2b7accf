//! What is known of an address.

use std::ffi::c_void;
use std::ptr;

use crate::prelude::*;

/// An address of host memory, which is the same on a device.
fn host_ptr(address: Address) -> *mut c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or_default())
}

abi! {
    fn hipMemGetAddressRange(machine; base: *mut Address, bytes: *mut Bytes, address: Address) {
        if base.is_null() || bytes.is_null() {
            crash("hipMemGetAddressRange was given a null pointer to write to");
        }
        // SAFETY: the caller's pointer is valid.
        let base = unsafe { Out::new(base) }?;
        // SAFETY: the caller's pointer is valid.
        let bytes = unsafe { Out::new(bytes) }?;
        refuse_if(machine.ranges.refuses(), UNKNOWN)?;
        let state = machine.state();
        // Of mapped memory it is the mapping, not the reservation.
        let mapped = state.vm.mapping_of(address).map(|(start, mapping)| (start, mapping.bytes));
        let plain = || state.allocation_of(address).map(|(start, found)| (start, found.bytes));
        let (start, size) = mapped.or_else(plain).ok_or(NOT_FOUND)?;
        base.write(start);
        bytes.write(size);
        Ok(())
    }

    fn hipPointerGetAttributes(machine; attributes: *mut PointerAttribute, address: Address) => attributes {
        refuse_if(address == 0 && machine.personality.refuses_null(), INVALID_VALUE)?;
        let state = machine.state();
        let mapped = state.vm.mapping_of(address).map(|(_, mapping)| (MEMORY_TYPE_DEVICE, mapping.device));
        let plain = state.allocation_of(address).map(|(_, found)| {
            let kind = match found.kind {
                Kind::Direct | Kind::Pooled => MEMORY_TYPE_DEVICE,
                Kind::Host => MEMORY_TYPE_HOST,
            };
            (kind, found.device)
        });
        let (kind, device) = mapped.or(plain).unwrap_or((MEMORY_TYPE_UNREGISTERED, 0));
        Ok(PointerAttribute {
            kind,
            device: number(device),
            device_pointer: address,
            host_pointer: if kind == MEMORY_TYPE_HOST { host_ptr(address) } else { ptr::null_mut() },
            is_managed: 0,
            allocation_flags: 0,
        })
    }
}
