//! Memory of `hipMalloc`.

use std::ffi::c_uint;

use cachette_hal::{Device, DevicePtr};
use cachette_hal_hip::types::{Extent, PitchedPointer};

use crate::prelude::*;

/// Of what the distance between rows is a multiple.
const ROW: usize = 256;

fn allocate(machine: &Machine, bytes: Bytes) -> Answer<Address> {
    if bytes == 0 {
        return Ok(0);
    }
    let (position, device) = machine.current();
    let address = device.allocate(bytes).map_err(status_of)?.address();
    let allocation = Allocation { bytes, device: position, kind: Kind::Direct };
    machine.state().allocations.insert(address, allocation);
    Ok(address)
}

abi! {
    /// A size of zero gives null and success.
    fn hipMalloc(machine; address: *mut Address, bytes: Bytes) => address {
        allocate(machine, bytes)
    }

    fn hipExtMallocWithFlags(machine; address: *mut Address, bytes: Bytes, flags: c_uint) => address {
        // Fine-grained, signal, uncached and contiguous.
        refuse_if(flags > 4, INVALID_VALUE)?;
        allocate(machine, bytes)
    }

    /// Managed memory is device memory here.
    fn hipMallocManaged(machine; address: *mut Address, bytes: Bytes, flags: c_uint) => address {
        refuse_if(bytes == 0 || ![1, 2].contains(&flags), INVALID_VALUE)?;
        allocate(machine, bytes)
    }

    fn hipMemAllocPitch(
        machine;
        address: *mut Address,
        pitch: *mut usize,
        width: usize,
        rows: usize,
        element: c_uint,
    ) => address {
        refuse_if(![4, 8, 16].contains(&element), INVALID_VALUE)?;
        // SAFETY: the caller's pointer is null or valid.
        let pitch = unsafe { Out::new(pitch) }?;
        let row = width.next_multiple_of(ROW);
        let start = allocate(machine, (row * rows) as Bytes)?;
        pitch.write(row);
        Ok(start)
    }

    fn hipMalloc3D(machine; to: *mut PitchedPointer, extent: Extent) => to {
        let pitch = extent.width.next_multiple_of(ROW);
        let address = allocate(machine, (pitch * extent.height * extent.depth) as Bytes)?;
        Ok(PitchedPointer { address, pitch, width: extent.width, height: extent.height })
    }

    fn hipFree(machine; address: Address) {
        let Some(ptr) = DevicePtr::new(address) else { return Ok(()) };
        if machine.state().recordings.free(ptr)? {
            return Ok(());
        }
        let is_right = |kind| kind != Kind::Host;
        machine.give_back(address, is_right, INVALID_VALUE, |found| {
            let device = &machine.devices[found.device];
            if found.kind == Kind::Pooled {
                return crate::stream_ordered::free_pooled(machine, device, ptr);
            }
            // SAFETY: 1. the table had it. 2. The caller's promise.
            unsafe { device.free(ptr) }.map_err(status_of)
        })
    }
}
