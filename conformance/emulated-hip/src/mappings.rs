//! Mappings and rights to them, with the defects of each version.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_ulonglong};
use std::os::fd::AsFd;

use cachette_emulated::relaxed;
use cachette_hal::{Access, Backing, Device, DevicePtr, StreamRef};

use crate::device::wait_for_all;
use crate::prelude::*;
use crate::programs::wait_for_blocking_streams;
use crate::virtual_memory::drop_reference;
use crate::vm_state::{Handle, Mapping, Physical};

/// Waits for the default stream of the current device, and for the streams that it waits for, as mapping and unmapping
/// do before 7.14.
fn wait_for_default_stream(machine: &Machine) -> Answer {
    if machine.personality.unmap_waits_for_streams() {
        return Ok(());
    }
    let (position, device) = machine.current();
    wait_for_blocking_streams(machine, device, position)?;
    // SAFETY: 1. the default stream always lives.
    relaxed(device, |device| unsafe { device.synchronize(StreamRef::DEFAULT) }).map_err(status_of)
}

/// Maps a handle whole on the device beneath.
fn map_beneath(machine: &Machine, address: Address, bytes: Bytes, handle: BackingHandle, entry: &Handle) -> Answer {
    let at = DevicePtr::new(address).ok_or(INVALID_VALUE)?;
    let reserved = machine.state().vm.reservation_of(address, bytes).is_some();
    refuse_if(!reserved || machine.state().vm.overlaps(address, bytes), INVALID_VALUE)?;
    refuse_if(machine.maps.refuses(), OUT_OF_MEMORY)?;
    let memory = machine.devices[entry.device].virtual_memory().map_err(lacking)?;
    let raw = match &entry.physical {
        Physical::Made(raw) => *raw,
        Physical::Imported(descriptor) => {
            let raw = memory.import_backing(descriptor.as_fd(), bytes).map_err(status_of)?.raw();
            if let Some(entry) = machine.state().vm.handles.get_mut(&handle) {
                entry.physical = Physical::Made(raw);
                entry.bytes = bytes;
            }
            raw
        }
    };
    // SAFETY: 1. the table has the handle.
    unsafe { memory.map(at, &Backing::from_raw(raw, bytes)) }.map_err(status_of)
}

fn unmap_one(machine: &Machine, start: u64) -> Answer {
    let found = machine.state().vm.mappings.get(&start).cloned().ok_or(INVALID_VALUE)?;
    if found.is_stuck {
        crash("hipMemUnmap gave up the reference of this mapping before");
    }
    if machine.ends.refuses() {
        refuse_if(!machine.personality.swallows_map_errors(), UNKNOWN)?;
        // It stays mapped, but its reference is given up.
        if let Some(mapping) = machine.state().vm.mappings.get_mut(&start) {
            mapping.is_stuck = true;
        }
        return drop_reference(machine, found.handle);
    }
    if machine.personality.unmap_waits_for_streams() {
        let devices = found.rights.keys().copied().chain([found.device]);
        for device in devices.collect::<BTreeSet<_>>() {
            wait_for_all(&machine.devices[device])?;
        }
    }
    if !found.is_part {
        let memory = machine.devices[found.device].virtual_memory().map_err(lacking)?;
        let at = DevicePtr::new(start).ok_or(INVALID_VALUE)?;
        // SAFETY: 2. the promise of the caller of `hipMemUnmap`.
        unsafe { memory.unmap(at, found.bytes) }.map_err(status_of)?;
    }
    let mut state = machine.state();
    state.vm.mappings.remove(&start);
    state.vm.unlist(start, found.bytes);
    drop(state);
    drop_reference(machine, found.handle)
}

/// A right in the terms of the device beneath, with the device's position.
fn right(machine: &Machine, wanted: &MemAccessDesc) -> Answer<(usize, Access, c_int)> {
    let position = position(machine, wanted.location.id).map_err(|_| INVALID_VALUE)?;
    let ordinal = machine.devices[position].info().ordinal;
    let access = match wanted.flags {
        MEM_ACCESS_NONE => Access::None(ordinal),
        MEM_ACCESS_READ => Access::Read(ordinal),
        MEM_ACCESS_READ_WRITE => Access::ReadWrite(ordinal),
        _ => return Err(INVALID_VALUE),
    };
    if wanted.location.kind == MEM_LOCATION_TYPE_DEVICE {
        Ok((position, access, wanted.flags))
    } else {
        Err(INVALID_VALUE)
    }
}

/// Sets one right to one mapping. Whatever fails, the answer is the same.
fn set_right(machine: &Machine, start: u64, (position, access, flags): (usize, Access, c_int)) -> Answer {
    let found = machine.state().vm.mappings.get(&start).cloned().ok_or(INVALID_VALUE)?;
    if found.is_part {
        let accepted = machine.personality.accepts_parts();
        return if accepted { Ok(()) } else { Err(INVALID_VALUE) };
    }
    // The kernel has no memory for its tables: the mapping stays, without the right.
    refuse_if(flags != MEM_ACCESS_NONE && machine.rights.refuses(), INVALID_VALUE)?;
    let memory = machine.devices[found.device].virtual_memory().map_err(lacking)?;
    let at = DevicePtr::new(start).ok_or(INVALID_VALUE)?;
    // SAFETY: 2. the promise of the caller of `hipMemSetAccess`.
    unsafe { memory.set_access(at, found.bytes, &[access]) }.map_err(|_| INVALID_VALUE)?;
    if let Some(mapping) = machine.state().vm.mappings.get_mut(&start) {
        mapping.rights.insert(position, flags);
    }
    Ok(())
}

abi! {
    fn hipMemMap(machine; address: Address, bytes: Bytes, offset: Bytes, handle: BackingHandle, flags: c_ulonglong) {
        refuse_if(offset != 0 || flags != 0 || bytes == 0 || address == 0, INVALID_VALUE)?;
        let entry = machine.state().vm.handles.get(&handle).cloned().ok_or(INVALID_VALUE)?;
        wait_for_default_stream(machine)?;
        let is_part = bytes < entry.bytes;
        machine.state().vm.list(address, bytes);
        if !is_part && map_beneath(machine, address, bytes, handle, &entry).is_err() {
            // Nothing is mapped, whatever is said of it.
            let swallowed = machine.personality.swallows_map_errors();
            let vm = &mut machine.state().vm;
            if !machine.personality.sums_mappings() {
                vm.unlist(address, bytes);
            }
            if !swallowed {
                return Err(INVALID_VALUE);
            }
            // The reference that a mapping would have is not given back.
            if let Some(entry) = vm.handles.get_mut(&handle) {
                entry.references += 1;
            }
            return Ok(());
        }
        let mapping = Mapping { bytes, handle, device: entry.device, is_part, is_stuck: false, rights: BTreeMap::new() };
        let mut state = machine.state();
        if let Some(entry) = state.vm.handles.get_mut(&handle) {
            entry.references += 1;
        }
        state.vm.mappings.insert(address, mapping);
        Ok(())
    }

    fn hipMemUnmap(machine; address: Address, bytes: Bytes) {
        let personality = machine.personality;
        let whole = machine.state().vm.whole(address, bytes);
        let Some(whole) = whole else {
            let touched = machine.state().vm.mapping_of(address).is_some();
            if !touched && personality.crashes_unmapping_nothing() {
                crash("hipMemUnmap where nothing is mapped");
            }
            // Said to be done, though nothing is.
            let accepted = touched && personality.accepts_parts();
            return if accepted { Ok(()) } else { Err(INVALID_VALUE) };
        };
        wait_for_default_stream(machine)?;
        if whole.len() > 1 && personality.is_spoiled_by_wide_unmap() {
            let vm = &mut machine.state().vm;
            let start = vm.reservation_of(address, bytes).map(|(start, _)| start);
            if let Some(found) = start.and_then(|start| vm.reservations.get_mut(&start)) {
                found.is_spoiled = true;
            }
        }
        whole.into_iter().try_for_each(|start| unmap_one(machine, start))
    }

    fn hipMemSetAccess(machine; address: Address, bytes: Bytes, access: *const MemAccessDesc, count: usize) {
        refuse_if(access.is_null() || count == 0 || bytes == 0, INVALID_VALUE)?;
        // SAFETY: the caller's list is as long as it says.
        let wanted = unsafe { std::slice::from_raw_parts(access, count) };
        let rights: Vec<_> = wanted.iter().map(|one| right(machine, one)).collect::<Answer<_>>()?;
        let starts = if machine.personality.accepts_parts() {
            machine.state().vm.touched(address, bytes)
        } else {
            machine.state().vm.whole(address, bytes)
        };
        let starts = starts.ok_or(INVALID_VALUE)?;
        let adds_up = || machine.state().vm.adds_up(address, bytes);
        refuse_if(machine.personality.sums_mappings() && !adds_up(), INVALID_VALUE)?;
        for right in rights {
            starts.iter().try_for_each(|start| set_right(machine, *start, right))?;
        }
        Ok(())
    }

    fn hipMemGetAccess(machine; flags: *mut c_ulonglong, location: *const MemLocation, address: Address) => flags {
        refuse_if(location.is_null() || address == 0, INVALID_VALUE)?;
        // SAFETY: the caller's pointer is null or valid.
        let location = unsafe { location.read() };
        let device = position(machine, location.id).map_err(|_| INVALID_VALUE)?;
        refuse_if(location.kind != MEM_LOCATION_TYPE_DEVICE, INVALID_VALUE)?;
        let state = machine.state();
        let (_, mapping) = state.vm.mapping_of(address).ok_or(INVALID_VALUE)?;
        Ok(mapping.rights.get(&device).map_or(0, |flags| c_ulonglong::from(flags.unsigned_abs())))
    }
}
