//! The default pool of a device.

use std::ffi::{c_int, c_void};
use std::ptr;

use cachette_emulated::{GraphMemory, capture_of};
use cachette_hal::{Device, StreamOrdered, StreamRef};

use crate::device::unit_of_stream;
use crate::ledger::Range;
use crate::prelude::*;

/// What the handle of the first device's pool is; others follow.
pub(crate) const FIRST_POOL: usize = 0x0b00_0000;
/// The distance between the handles of two pools of one device.
pub(crate) const POOLS_APART: usize = 0x1000;

fn pool(unit: &Unit) -> Answer<&dyn StreamOrdered> {
    unit.device.stream_ordered().map_err(lacking)
}

/// The device whose pool has this handle.
pub(crate) fn unit_of<T>(pool: *mut T) -> Answer<&'static Unit> {
    let index = pool.addr().checked_sub(FIRST_POOL).ok_or(INVALID_VALUE)?;
    driver()?.units.get(index % POOLS_APART).ok_or(INVALID_VALUE)
}

fn allocate_on(unit: &Unit, bytes: usize, stream: *mut c_void) -> Answer<u64> {
    let bytes = bytes as u64;
    // SAFETY: 1. is the caller's promise.
    if let Some(capture) = unsafe { capture_of(&unit.device, named_stream(stream)) } {
        let memory = GraphMemory::allocate(&unit.device, bytes).map_err(told)?;
        return Ok(driver()?.ledger.recordings.lock().allocated(capture, memory));
    }
    // SAFETY: 1. is the caller's promise.
    let start = unsafe { pool(unit)?.allocate_on(bytes, stream_ref(stream)) }.map_err(told)?;
    let range = Range { bytes, backing: None, unit: unit.index };
    driver()?.ledger.ranges.lock().insert(start.address(), range);
    Ok(start.address())
}

/// Frees memory of the pool after all work of the device, as `cuMemFree` may.
pub(crate) fn free_pooled(unit: &Unit, at: u64) -> Answer {
    unit.device.synchronize_device().map_err(told)?;
    // SAFETY: 1. and 2. are the caller's promises.
    unsafe { pool(unit)?.free_on(device_ptr(at)?, StreamRef::DEFAULT) }.map_err(told)
}

abi! {
    fn cuDeviceGetDefaultMemPool(found: *mut *mut c_void, device: c_int) => found {
        let unit = driver()?.unit(device)?;
        pool(unit)?;
        Ok(ptr::without_provenance_mut(FIRST_POOL + unit.index))
    }

    /// Allocates in stream order, from the pool of the stream's device.
    fn cuMemAllocAsync(at: *mut u64, bytes: usize, stream: *mut c_void) => at {
        refuse_if(at.is_null(), INVALID_VALUE)?;
        allocate_on(unit_of_stream(stream)?, bytes, stream)
    }

    fn cuMemAllocFromPoolAsync(at: *mut u64, bytes: usize, from: *mut c_void, stream: *mut c_void) => at {
        current()?;
        let unit = unit_of(from)?;
        refuse_if(at.is_null(), INVALID_VALUE)?;
        allocate_on(unit, bytes, stream)
    }

    fn cuMemFreeAsync(at: u64, stream: *mut c_void) {
        let (unit, ledger, ptr) = (unit_of_stream(stream)?, &driver()?.ledger, device_ptr(at)?);
        // SAFETY: 1. is the caller's promise.
        if let Some(capture) = unsafe { capture_of(&unit.device, named_stream(stream)) } {
            return ledger.recordings.lock().free_in_capture(ptr, capture);
        }
        if ledger.recordings.lock().free(ptr)? {
            return Ok(());
        }
        ledger.give_back(at, |_| {
            // SAFETY: 1. and 2. are the caller's promises.
            unsafe { pool(unit)?.free_on(ptr, stream_ref(stream)) }.map_err(told)
        })
    }

    fn cuMemPoolTrimTo(from: *mut c_void, keep: usize) {
        pool(unit_of(from)?)?.trim(keep as u64).map_err(told)
    }
}
