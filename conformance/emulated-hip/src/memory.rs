//! Memory of `hipMalloc`.

use cachette_hal::{Device, DevicePtr};

use crate::prelude::*;

abi! {
    /// A size of zero gives null and success.
    fn hipMalloc(machine; address: *mut Address, bytes: Bytes) => address {
        if bytes == 0 {
            return Ok(0);
        }
        let (position, device) = machine.current();
        let address = device.allocate(bytes).map_err(status_of)?.address();
        let allocation = Allocation { bytes, device: position, kind: Kind::Direct };
        machine.state().allocations.insert(address, allocation);
        Ok(address)
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
