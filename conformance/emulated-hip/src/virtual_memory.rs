//! Reservations and physical memory, with the defects of each version.

use std::ffi::{c_int, c_ulonglong};
use std::fs::File;
use std::os::fd::IntoRawFd;

use cachette_hal::{Backing, Device, DevicePtr, ErrorKind, Sharing};

use crate::prelude::*;
use crate::vm_state::{Handle, PAGE, Physical, Reservation};

/// What a size of physical memory is checked against, before the kernel refuses what is no whole page.
const CHECKED: u64 = 2 << 10;
/// More addresses than this are never there.
const MOST_ADDRESSES: u64 = 1 << 40;

/// The properties of physical memory to be made, if HIP accepts them.
///
/// # Safety
///
/// The pointer is null, or valid for reading.
unsafe fn properties(from: *const MemAllocationProp) -> Answer<MemAllocationProp> {
    refuse_if(from.is_null(), INVALID_VALUE)?;
    // SAFETY: the caller's promise.
    let found = unsafe { from.read() };
    let accepted = found.kind == MEM_ALLOCATION_TYPE_PINNED && found.location.kind == MEM_LOCATION_TYPE_DEVICE;
    if accepted { Ok(found) } else { Err(INVALID_VALUE) }
}

/// Gives up a reference to physical memory; with the last one it goes. A mapping holds one.
pub(crate) fn drop_reference(machine: &Machine, handle: BackingHandle) -> Answer {
    let mut state = machine.state();
    let entry = state.vm.handles.get_mut(&handle).ok_or(INVALID_VALUE)?;
    entry.references -= 1;
    if entry.references > 0 {
        return Ok(());
    }
    let removed = state.vm.handles.remove(&handle).ok_or(INVALID_VALUE)?;
    drop(state);
    if removed.is_shareable && machine.personality.leaks_descriptors() {
        // The process never sees it again.
        let _leaked = File::open("/dev/null").map(IntoRawFd::into_raw_fd);
    }
    let Physical::Made(raw) = removed.physical else { return Ok(()) };
    let memory = machine.devices[removed.device].virtual_memory().map_err(lacking)?;
    // SAFETY: 1. the table had it until now.
    unsafe { memory.destroy_backing(Backing::from_raw(raw, removed.bytes)) }.map_err(status_of)
}

abi! {
    fn hipMemGetAllocationGranularity(
        machine;
        granularity: *mut Bytes,
        wanted: *const MemAllocationProp,
        option: c_int,
    ) => granularity {
        // SAFETY: the caller's pointer is null or valid.
        let wanted = unsafe { properties(wanted) }?;
        position(machine, wanted.location.id).map_err(|_| INVALID_VALUE)?;
        Ok(match option {
            MEM_GRANULARITY_MINIMUM => PAGE,
            MEM_GRANULARITY_RECOMMENDED => machine.personality.recommended_granularity(),
            _ => return Err(INVALID_VALUE),
        })
    }

    fn hipMemAddressReserve(
        machine;
        address: *mut Address,
        bytes: Bytes,
        alignment: Bytes,
        wish: Address,
        flags: c_ulonglong,
    ) => address {
        refuse_if(flags != 0, INVALID_VALUE)?;
        let aligned = alignment == 0 || alignment.is_power_of_two();
        refuse_if(bytes == 0 || !bytes.is_multiple_of(PAGE) || !aligned, machine.personality.odd_reservation())?;
        refuse_if(bytes >= MOST_ADDRESSES, OUT_OF_MEMORY)?;
        let (position, device) = machine.current();
        let start = device.virtual_memory().map_err(lacking)?.reserve(bytes, DevicePtr::new(wish)).map_err(status_of)?;
        let reservation = Reservation { bytes, device: position, is_spoiled: false, is_lost: false };
        machine.state().vm.reservations.insert(start.address(), reservation);
        Ok(start.address())
    }

    fn hipMemAddressFree(machine; address: Address, bytes: Bytes) {
        let found = machine.state().vm.reservations.get(&address).copied();
        let found = found.filter(|found| found.bytes == bytes).ok_or(INVALID_VALUE)?;
        if found.is_lost && machine.personality.crashes_releasing_nothing() {
            crash("hipMemAddressFree of addresses that the library no longer knows");
        }
        refuse_if(found.is_lost, INVALID_VALUE)?;
        refuse_if(found.is_spoiled || machine.state().vm.overlaps(address, bytes), UNKNOWN)?;
        if machine.ends.refuses() {
            machine.state().vm.reservations.insert(address, Reservation { is_lost: true, ..found });
            return Err(UNKNOWN);
        }
        let memory = machine.devices[found.device].virtual_memory().map_err(lacking)?;
        let start = DevicePtr::new(address).ok_or(INVALID_VALUE)?;
        // SAFETY: 1. the table has it, whole.
        unsafe { memory.release(start, bytes) }.map_err(status_of)?;
        let vm = &mut machine.state().vm;
        vm.reservations.remove(&address);
        vm.forget_list(address);
        Ok(())
    }

    fn hipMemCreate(
        machine;
        handle: *mut BackingHandle,
        bytes: Bytes,
        wanted: *const MemAllocationProp,
        flags: c_ulonglong,
    ) => handle {
        // SAFETY: the caller's pointer is null or valid.
        let wanted = unsafe { properties(wanted) }?;
        let kinds = [MEM_HANDLE_TYPE_NONE, MEM_HANDLE_TYPE_FILE_DESCRIPTOR];
        refuse_if(!kinds.contains(&wanted.requested_handle_type), INVALID_VALUE)?;
        refuse_if(flags != 0 || bytes == 0 || !bytes.is_multiple_of(CHECKED), INVALID_VALUE)?;
        refuse_if(!bytes.is_multiple_of(PAGE), machine.personality.half_page())?;
        let named = position(machine, wanted.location.id).map_err(|_| INVALID_VALUE)?;
        let device = if machine.personality.ignores_location() { machine.current().0 } else { named };
        let is_shareable = wanted.requested_handle_type == MEM_HANDLE_TYPE_FILE_DESCRIPTOR;
        let sharing = if is_shareable { Sharing::FileDescriptor } else { Sharing::Private };
        let memory = machine.devices[device].virtual_memory().map_err(lacking)?;
        let made = memory.create_backing(bytes, sharing, false);
        // Without a descriptor left it is said to be without memory.
        let made = made.map_err(|error| match error.kind() {
            ErrorKind::Refused => OUT_OF_MEMORY,
            _ => status_of(error),
        })?;
        let mut state = machine.state();
        let handle = state.handle();
        let entry = Handle { device, bytes, is_shareable, references: 1, physical: Physical::Made(made.raw()) };
        state.vm.handles.insert(handle, entry);
        Ok(handle)
    }

    fn hipMemRelease(machine; handle: BackingHandle) {
        drop_reference(machine, handle)
    }

    fn hipMemRetainAllocationHandle(machine; handle: *mut BackingHandle, address: Address) => handle {
        let mut state = machine.state();
        let Some(handle) = state.vm.mapping_of(address).map(|(_, mapping)| mapping.handle) else {
            // Addresses that are not memory at all are refused.
            if state.allocation_of(address).is_some() && machine.personality.crashes_retaining_plain_memory() {
                crash("hipMemRetainAllocationHandle of memory that was not mapped");
            }
            return Err(INVALID_VALUE);
        };
        state.vm.handles.get_mut(&handle).ok_or(INVALID_VALUE)?.references += 1;
        Ok(handle)
    }
}
