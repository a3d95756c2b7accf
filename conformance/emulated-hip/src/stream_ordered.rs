//! The stream-ordered pool.

use std::ffi::c_int;

use cachette_emulated::{GraphMemory, capture_of, relaxed};
use cachette_hal::{AnyDevice, Device, DevicePtr, StreamRef};

use crate::prelude::*;

/// Handles of the devices' pools begin here.
const POOLS: PoolHandle = 0x3000_0000;

/// What a pool gives out that could not map its memory.
const NOWHERE: Address = 0x7fff_0000_0000;

/// The device whose pool this is, with its position.
pub(crate) fn pool_of(machine: &Machine, pool: PoolHandle) -> Answer<(usize, &AnyDevice)> {
    let created = machine.state().pools.device_of(pool);
    let position = created.or_else(|| pool.checked_sub(POOLS)).ok_or(INVALID_VALUE)?;
    let device = machine.devices.get(position).ok_or(INVALID_VALUE)?;
    Ok((position, device))
}

pub(crate) const fn default_pool(position: usize) -> PoolHandle {
    POOLS + position
}

/// The status of a stream that is not known, which these calls have for themselves.
fn known(status: Status) -> Status {
    if status == CONTEXT_IS_DESTROYED { INVALID_HANDLE } else { status }
}

/// Frees memory of the pool at once, as `hipFree` may; since 7.0 it waits for nothing.
pub(crate) fn free_pooled(machine: &Machine, device: &AnyDevice, ptr: DevicePtr) -> Answer {
    if machine.personality.last_error_is_last_status() {
        relaxed(device, Device::synchronize_device).map_err(status_of)?;
    }
    let pool = device.stream_ordered().map_err(lacking)?;
    // SAFETY: 1. the caller found it in the table. 2. The promise of the caller of `hipFree`.
    unsafe { pool.free_on(ptr, StreamRef::DEFAULT) }.map_err(status_of)
}

abi! {
    fn hipMallocFromPoolAsync(
        machine;
        address: *mut Address,
        bytes: Bytes,
        pool: PoolHandle,
        handle: StreamHandle,
    ) => address {
        // Memory of a destroyed stream is ordered by none.
        let stream =
            if machine.misses(handle) { StreamRef::DEFAULT } else { machine.stream(handle).map_err(known)?.2 };
        let of = pool;
        let (position, device) = pool_of(machine, pool)?;
        if bytes == 0 {
            return Ok(0);
        }
        if let Ok((_, of_stream, beneath)) = machine.any_stream(handle)
            // SAFETY: 1. the table has it.
            && let Some(capture) = unsafe { capture_of(of_stream, beneath) }
        {
            let memory = GraphMemory::allocate(device, bytes).map_err(status_of)?;
            return Ok(machine.state().recordings.allocated(capture, memory));
        }
        if machine.has_bad_pool {
            return Ok(NOWHERE);
        }
        let pool = device.stream_ordered().map_err(lacking)?;
        // SAFETY: 1. the table has the stream.
        let address = unsafe { pool.allocate_on(bytes, stream) }.map_err(status_of)?.address();
        let allocation = Allocation { bytes, device: position, kind: Kind::Pooled };
        let mut state = machine.state();
        state.allocations.insert(address, allocation);
        state.pools.allocated(address, bytes, of, position);
        Ok(address)
    }

    fn hipFreeAsync(machine; address: Address, handle: StreamHandle) {
        let Some(ptr) = DevicePtr::new(address) else {
            let refused = machine.personality.refuses_null();
            return if refused { Err(INVALID_VALUE) } else { Ok(()) };
        };
        let (_, device, stream) = machine.stream(handle).map_err(known)?;
        // SAFETY: 1. the table has it.
        if let Some(capture) = unsafe { capture_of(device, stream) } {
            return machine.state().recordings.free_in_capture(ptr, capture);
        }
        if machine.state().recordings.free(ptr)? {
            return Ok(());
        }
        if address == NOWHERE {
            crash("hipFreeAsync of memory that the pool could not map");
        }
        machine.give_back(
            address,
            |_| true,
            INVALID_VALUE,
            |found| {
                match device.stream_ordered() {
                    Ok(pool) if found.kind == Kind::Pooled => {
                        // SAFETY: 1. the tables have both. 2. The caller's promise.
                        unsafe { pool.free_on(ptr, stream) }.map_err(status_of)
                    }
                    _ => Err(INVALID_VALUE),
                }
            },
        )
    }

    fn hipDeviceGetDefaultMemPool(machine; pool: *mut PoolHandle, device: c_int) => pool {
        Ok(default_pool(position(machine, device)?))
    }

    fn hipMemPoolTrimTo(machine; pool: PoolHandle, keep: Bytes) {
        let (_, device) = pool_of(machine, pool)?;
        device.stream_ordered().map_err(lacking)?.trim(keep).map_err(status_of)
    }
}
