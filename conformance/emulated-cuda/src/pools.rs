//! Pools that a program makes; each is another name of its device's default pool.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use cachette_hal::Device;

use crate::ledger::Range;
use crate::prelude::*;
use crate::stream_ordered::{FIRST_POOL, POOLS_APART, unit_of};

static MADE: AtomicUsize = AtomicUsize::new(0);

/// The first fields of `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolProperties {
    kind: c_int,
    handle_types: c_int,
    location_kind: c_int,
    location: c_int,
}

abi! {
    fn cuMemPoolCreate(pool: *mut *mut c_void, properties: *const PoolProperties) => pool {
        refuse_if(pool.is_null() || properties.is_null(), INVALID_VALUE)?;
        // SAFETY: it is not null, and otherwise the caller's promise.
        let properties = unsafe { properties.read() };
        refuse_if(properties.kind != 1 || properties.location_kind != 1, INVALID_VALUE)?;
        let unit = driver()?.unit(properties.location)?;
        // Relaxed: only that no two calls get the same matters.
        let number = 1 + MADE.fetch_add(1, Ordering::Relaxed);
        Ok(ptr::without_provenance_mut(FIRST_POOL + number * POOLS_APART + unit.index))
    }

    fn cuMemPoolDestroy(pool: *mut c_void) {
        unit_of(pool).map(drop)
    }

    fn cuMemPoolSetAccess(pool: *mut c_void, _rights: *const c_void, _count: usize) {
        unit_of(pool).map(drop)
    }

    fn cuDeviceSetMemPool(device: c_int, pool: *mut c_void) {
        let unit = driver()?.unit(device)?;
        refuse_if(unit_of(pool)?.index != unit.index, INVALID_VALUE)
    }

    /// Takes everything that the primary context of a device has.
    fn cuDevicePrimaryCtxReset_v2(device: c_int) {
        let unit = driver()?.unit(device)?;
        let ranges = &driver()?.ledger.ranges;
        let own = |range: &Range| range.unit == unit.index && range.backing.is_none();
        let starts: Vec<_> = ranges.lock().iter().filter(|(_, range)| own(range)).map(|(start, _)| *start).collect();
        for start in starts {
            ranges.lock().remove(&start);
            // SAFETY: 1. the ledger had it. 2. The caller's promise.
            unsafe { unit.device.free(device_ptr(start)?) }.map_err(told)?;
        }
        Ok(())
    }
}
