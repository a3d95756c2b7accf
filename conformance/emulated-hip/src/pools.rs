//! Pools that programs create, and what they ask of pools.
//!
//! All pools of a device are one beneath: they differ in their settings and in what they count.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};

use crate::prelude::*;
use crate::stream_ordered::{default_pool, pool_of};

/// The first fields of `hipMemPoolProps`; the rest is not read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolProps {
    kind: c_int,
    handle_types: c_int,
    location: MemLocation,
}

#[derive(Clone, Debug)]
pub(crate) struct Pool {
    device: usize,
    /// Whether memory is reused in the three ways that attributes 1 to 3 name.
    reuse: [c_int; 3],
    threshold: u64,
    used: u64,
    most_used: u64,
    /// The rights of devices, where a program has set them.
    rights: HashMap<usize, c_int>,
}

impl Pool {
    fn new(device: usize) -> Self {
        Self { device, reuse: [1; 3], threshold: 0, used: 0, most_used: 0, rights: HashMap::new() }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Pools {
    /// Those that a program has created, or has asked about.
    known: HashMap<PoolHandle, Pool>,
    /// The pool of each device that does not use its default one.
    current: HashMap<usize, PoolHandle>,
    /// The pool and the size of what was allocated.
    allocated: HashMap<u64, (PoolHandle, u64)>,
}

impl Pools {
    /// The device of a pool that a program has created.
    pub(crate) fn device_of(&self, pool: PoolHandle) -> Option<usize> {
        self.known.get(&pool).map(|pool| pool.device)
    }

    /// The pool that serves a device's plain requests.
    pub(crate) fn current(&self, device: usize) -> PoolHandle {
        self.current.get(&device).copied().unwrap_or(default_pool(device))
    }

    fn get(&mut self, pool: PoolHandle, device: usize) -> &mut Pool {
        self.known.entry(pool).or_insert_with(|| Pool::new(device))
    }

    pub(crate) fn allocated(&mut self, address: u64, bytes: u64, pool: PoolHandle, device: usize) {
        let counted = self.get(pool, device);
        counted.used += bytes;
        counted.most_used = counted.most_used.max(counted.used);
        self.allocated.insert(address, (pool, bytes));
    }

    pub(crate) fn freed(&mut self, address: u64) {
        let Some((pool, bytes)) = self.allocated.remove(&address) else { return };
        if let Some(pool) = self.known.get_mut(&pool) {
            pool.used -= bytes;
        }
    }
}

#[derive(Clone, Copy)]
enum Attribute {
    /// One of the three ways of reuse, as an `int`.
    Reuse(usize),
    Threshold,
    /// Bytes, now.
    Current,
    /// The most bytes so far, which may be reset.
    Most,
}

const fn attribute_of(number: c_int) -> Answer<Attribute> {
    Ok(match number {
        1 => Attribute::Reuse(0),
        2 => Attribute::Reuse(1),
        3 => Attribute::Reuse(2),
        4 => Attribute::Threshold,
        // The pool beneath holds nothing that is free: what is reserved is used.
        5 | 7 => Attribute::Current,
        6 | 8 => Attribute::Most,
        _ => return Err(INVALID_VALUE),
    })
}

/// The device of a location, or a refusal.
fn located(machine: &Machine, location: MemLocation) -> Answer<usize> {
    refuse_if(location.kind != MEM_LOCATION_TYPE_DEVICE, INVALID_VALUE)?;
    position(machine, location.id).map_err(|_| INVALID_VALUE)
}

abi! {
    fn hipMemPoolCreate(machine; pool: *mut PoolHandle, properties: *const PoolProps) => pool {
        refuse_if(properties.is_null(), INVALID_VALUE)?;
        // SAFETY: it is not null, and otherwise the caller's.
        let wanted = unsafe { properties.read() };
        let kinds = [MEM_HANDLE_TYPE_NONE, MEM_HANDLE_TYPE_FILE_DESCRIPTOR];
        let accepted = wanted.kind == MEM_ALLOCATION_TYPE_PINNED && kinds.contains(&wanted.handle_types);
        refuse_if(!accepted, INVALID_VALUE)?;
        let device = located(machine, wanted.location)?;
        let mut state = machine.state();
        let handle = state.handle();
        state.pools.known.insert(handle, Pool::new(device));
        Ok(handle)
    }

    /// A device that uses the pool uses its default one again.
    fn hipMemPoolDestroy(machine; pool: PoolHandle) {
        let (position, _) = pool_of(machine, pool)?;
        refuse_if(pool == default_pool(position), INVALID_VALUE)?;
        let pools = &mut machine.state().pools;
        pools.known.remove(&pool);
        pools.current.retain(|_, current| *current != pool);
        Ok(())
    }

    fn hipMemPoolSetAttribute(machine; pool: PoolHandle, attribute: c_int, value: *const c_void) {
        let (position, _) = pool_of(machine, pool)?;
        refuse_if(value.is_null(), INVALID_VALUE)?;
        let mut state = machine.state();
        let pool = state.pools.get(pool, position);
        match attribute_of(attribute)? {
            // SAFETY: the caller's pointer is that of an `int`.
            Attribute::Reuse(which) => pool.reuse[which] = unsafe { value.cast::<c_int>().read() },
            // SAFETY: the caller's pointer is that of 64 bits.
            Attribute::Threshold => pool.threshold = unsafe { value.cast::<u64>().read() },
            Attribute::Current => return Err(INVALID_VALUE),
            Attribute::Most => {
                // SAFETY: the caller's pointer is that of 64 bits.
                let value = unsafe { value.cast::<u64>().read() };
                refuse_if(value != 0, INVALID_VALUE)?;
                pool.most_used = pool.used;
            }
        }
        Ok(())
    }

    fn hipMemPoolGetAttribute(machine; pool: PoolHandle, attribute: c_int, value: *mut c_void) {
        let (position, _) = pool_of(machine, pool)?;
        refuse_if(value.is_null(), INVALID_VALUE)?;
        let mut state = machine.state();
        let pool = state.pools.get(pool, position);
        let bytes = match attribute_of(attribute)? {
            Attribute::Reuse(which) => {
                // SAFETY: the caller's pointer is that of an `int`.
                unsafe { value.cast::<c_int>().write(pool.reuse[which]) };
                return Ok(());
            }
            Attribute::Threshold => pool.threshold,
            Attribute::Current => pool.used,
            Attribute::Most => pool.most_used,
        };
        // SAFETY: the caller's pointer is that of 64 bits.
        unsafe { value.cast::<u64>().write(bytes) };
        Ok(())
    }

    /// Notes the rights; devices that reach each other have them beneath.
    fn hipMemPoolSetAccess(machine; pool: PoolHandle, access: *const MemAccessDesc, count: usize) {
        let (own, _) = pool_of(machine, pool)?;
        refuse_if(access.is_null() || count == 0, INVALID_VALUE)?;
        // SAFETY: the caller's list is as long as it says.
        for wanted in unsafe { std::slice::from_raw_parts(access, count) } {
            refuse_if(wanted.location.kind != MEM_LOCATION_TYPE_DEVICE, INVALID_VALUE)?;
            let device = position(machine, wanted.location.id)?;
            refuse_if(device == own && wanted.flags != MEM_ACCESS_READ_WRITE, INVALID_VALUE)?;
            machine.state().pools.get(pool, own).rights.insert(device, wanted.flags);
        }
        Ok(())
    }

    fn hipMemPoolGetAccess(machine; flags: *mut c_int, pool: PoolHandle, location: *const MemLocation) => flags {
        let (own, _) = pool_of(machine, pool)?;
        refuse_if(location.is_null(), INVALID_VALUE)?;
        // SAFETY: it is not null, and otherwise the caller's.
        let device = located(machine, unsafe { location.read() })?;
        let usual = if device == own { MEM_ACCESS_READ_WRITE } else { MEM_ACCESS_NONE };
        Ok(machine.state().pools.get(pool, own).rights.get(&device).copied().unwrap_or(usual))
    }

    fn hipDeviceSetMemPool(machine; device: c_int, pool: PoolHandle) {
        let device = position(machine, device)?;
        let (own, _) = pool_of(machine, pool)?;
        refuse_if(device != own, INVALID_DEVICE)?;
        machine.state().pools.current.insert(device, pool);
        Ok(())
    }

    fn hipDeviceGetMemPool(machine; pool: *mut PoolHandle, device: c_int) => pool {
        let device = position(machine, device)?;
        Ok(machine.state().pools.current(device))
    }
}
