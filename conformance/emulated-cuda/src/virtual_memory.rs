//! Virtual memory: addresses and physical memory are separate.

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::slice;

use cachette_hal::{Access, Backing, Device, DevicePtr, ErrorKind, Sharing, VirtualMemory};

use crate::ledger::{Physical, Range};
use crate::prelude::*;
use crate::types::{Location, Properties, Right};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: c_uint = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: c_uint = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const DESCRIPTOR: c_uint = 1;
/// `CU_MEM_HANDLE_TYPE_FABRIC`.
pub(crate) const FABRIC: c_uint = 8;

pub(crate) fn memory(unit: &Unit) -> Answer<&dyn VirtualMemory> {
    unit.device.virtual_memory().map_err(lacking)
}

/// The device at a place.
fn located(driver: &Driver, location: Location) -> Answer<&Unit> {
    refuse_if(location.kind != ON_DEVICE, INVALID_VALUE)?;
    driver.unit(location.id)
}

/// The device that memory is to be of, and how the memory may leave the process.
///
/// # Safety
///
/// `properties` is null or valid for reads.
unsafe fn wanted(properties: *const Properties) -> Answer<(&'static Unit, Sharing)> {
    refuse_if(properties.is_null(), INVALID_VALUE)?;
    // SAFETY: it is not null, and otherwise the caller's promise.
    let properties = unsafe { properties.read() };
    let plain = properties.kind == PINNED
        && properties.compression == 0
        && properties.rdma == u8::from(settings().rdma)
        && properties.usage == 0
        && properties.reserved == [0; 4]
        && properties.win32_metadata.is_null();
    refuse_if(!plain, INVALID_VALUE)?;
    let sharing = match properties.handle_types {
        0 => Sharing::Private,
        DESCRIPTOR => Sharing::FileDescriptor,
        FABRIC => Sharing::Fabric,
        _ => return Err(NOT_SUPPORTED),
    };
    Ok((located(driver()?, properties.location)?, sharing))
}

/// What is behind a handle, with its device.
pub(crate) fn physical(handle: u64) -> Answer<(Physical, &'static Unit, Backing)> {
    let driver = driver()?;
    let found = driver.ledger.backings.lock().get(&handle).copied().ok_or(INVALID_VALUE)?;
    let unit = driver.units.get(found.unit).ok_or(INVALID_VALUE)?;
    let raw = usize::try_from(handle).map_err(|_| INVALID_HANDLE)?;
    Ok((found, unit, found.backing(raw)))
}

/// Enters a backing in the ledger, and tells its handle.
pub(crate) fn enter(unit: &Unit, backing: &Backing) -> Answer<u64> {
    let found = Physical { bytes: backing.bytes(), holders: 1, is_live: true, unit: unit.index };
    let handle = backing.raw() as u64;
    driver()?.ledger.backings.lock().insert(handle, found);
    Ok(handle)
}

fn access(right: &Right) -> Answer<Access> {
    let on = located(driver()?, right.location)?.device.info().ordinal;
    match right.flags {
        0 => Ok(Access::None(on)),
        1 => Ok(Access::Read(on)),
        3 => Ok(Access::ReadWrite(on)),
        _ => Err(INVALID_VALUE),
    }
}

/// The device whose memory is mapped at an address.
fn mapped(at: u64) -> Answer<&'static Unit> {
    let driver = driver()?;
    let (_, range) = driver.ledger.range_of(at).ok_or(INVALID_VALUE)?;
    driver.units.get(range.unit).ok_or(INVALID_VALUE)
}

abi! {
    fn cuMemGetAllocationGranularity(bytes: *mut usize, properties: *const Properties, which: c_uint) => bytes {
        // SAFETY: the caller's promise.
        let (unit, _) = unsafe { wanted(properties) }?;
        let granularity = memory(unit)?.granularity();
        let found = match which {
            0 => granularity.minimum,
            1 => granularity.recommended,
            _ => return Err(INVALID_VALUE),
        };
        let found = usize::try_from(found).map_err(|_| INVALID_VALUE)?;
        Ok(found)
    }

    fn cuMemAddressReserve(at: *mut u64, bytes: usize, alignment: usize, wish: u64, flags: c_ulonglong) => at {
        let memory = memory(current()?)?;
        let most = memory.granularity().recommended;
        let aligned = alignment == 0 || alignment.is_power_of_two();
        refuse_if(at.is_null() || flags != 0 || !aligned || alignment as u64 > most, INVALID_VALUE)?;
        let wish = DevicePtr::new(wish);
        let start = memory.reserve(bytes as u64, wish).map_err(told)?;
        Ok(start.address())
    }

    fn cuMemAddressFree(at: u64, bytes: usize) {
        let memory = memory(current()?)?;
        // SAFETY: 1. is the caller's promise.
        unsafe { memory.release(device_ptr(at)?, bytes as u64) }.map_err(told)
    }

    fn cuMemCreate(handle: *mut u64, bytes: usize, properties: *const Properties, flags: c_ulonglong) => handle {
        refuse_if(handle.is_null() || flags != 0, INVALID_VALUE)?;
        // SAFETY: the caller's promise.
        let (unit, sharing) = unsafe { wanted(properties) }?;
        let made = memory(unit)?.create_backing(bytes as u64, sharing, false);
        let entered = enter(unit, &made.map_err(told)?)?;
        Ok(entered)
    }

    fn cuMemRelease(handle: u64) {
        let (_, unit, backing) = physical(handle)?;
        let mut backings = driver()?.ledger.backings.lock();
        let found = backings.get_mut(&handle).ok_or(INVALID_VALUE)?;
        found.holders -= 1;
        let (holders, is_live) = (found.holders, found.is_live);
        if holders > 0 {
            return Ok(());
        }
        backings.remove(&handle);
        drop(backings);
        if !is_live {
            return Ok(());
        }
        // SAFETY: 1. is the caller's promise.
        unsafe { memory(unit)?.destroy_backing(backing) }.map_err(told)
    }

    /// The handle of what is mapped at an address, retained once more.
    fn cuMemRetainAllocationHandle(handle: *mut u64, at: *mut c_void) => handle {
        let ledger = &driver()?.ledger;
        let (_, range) = ledger.range_of(at.addr() as u64).ok_or(INVALID_VALUE)?;
        let backing = range.backing.ok_or(INVALID_VALUE)?;
        // A handle that was released comes back as a number, for its mapping keeps the memory.
        let released = Physical { bytes: range.bytes, holders: 0, is_live: false, unit: range.unit };
        ledger.backings.lock().entry(backing).or_insert(released).holders += 1;
        Ok(backing)
    }

    /// Maps physical memory, whole.
    fn cuMemMap(at: u64, bytes: usize, offset: usize, handle: u64, flags: c_ulonglong) {
        let (found, unit, backing) = physical(handle)?;
        refuse_if(offset != 0 || flags != 0, INVALID_VALUE)?;
        refuse_if(bytes as u64 != found.bytes, NOT_SUPPORTED)?;
        // SAFETY: 1. the ledger knows the backing.
        let mapped = unsafe { memory(unit)?.map(device_ptr(at)?, &backing) };
        mapped.map_err(|error| match error.kind() {
            // A second address; the driver gives no reason either.
            ErrorKind::Unsupported => UNKNOWN,
            _ => told(error),
        })?;
        let range = Range { bytes: found.bytes, backing: Some(handle), unit: unit.index };
        driver()?.ledger.ranges.lock().insert(at, range);
        Ok(())
    }

    /// Unmaps all that a range holds, which may be nothing; a part of a mapping is an invalid value.
    fn cuMemUnmap(at: u64, bytes: usize) {
        let driver = driver()?;
        let end = at.checked_add(bytes as u64).ok_or(INVALID_VALUE)?;
        let cut = |at| driver.ledger.range_of(at).is_some_and(|(start, _)| start != at);
        refuse_if(bytes == 0 || cut(at) || cut(end), INVALID_VALUE)?;
        let inside: Vec<u64> = driver.ledger.ranges.lock().range(at..end).map(|(at, _)| *at).collect();
        for at in inside {
            driver.ledger.give_back(at, |range| {
                let unit = driver.units.get(range.unit).ok_or(INVALID_VALUE)?;
                // SAFETY: 2. is the caller's promise.
                unsafe { memory(unit)?.unmap(device_ptr(at)?, range.bytes) }.map_err(told)
            })?;
        }
        Ok(())
    }

    fn cuMemSetAccess(at: u64, bytes: usize, rights: *const Right, count: usize) {
        refuse_if(rights.is_null() || count == 0, INVALID_VALUE)?;
        // SAFETY: the caller's promise.
        let rights = unsafe { slice::from_raw_parts(rights, count) };
        let access: Answer<Vec<_>> = rights.iter().map(access).collect();
        let memory = memory(mapped(at)?)?;
        // SAFETY: 2. is the caller's promise.
        unsafe { memory.set_access(device_ptr(at)?, bytes as u64, &access?) }.map_err(told)
    }
}
