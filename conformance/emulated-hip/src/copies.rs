//! Copies and fills that name no direction, or return when they are done.

use std::ffi::{c_int, c_void};
use std::ptr;

use cachette_hal::{Device, DevicePtr, StreamRef};

use crate::prelude::*;
use crate::programs::{answer, wait_for_blocking_streams};
use crate::transfer::{hipMemcpyDtoDAsync, hipMemcpyDtoHAsync, hipMemcpyHtoDAsync, hipMemsetAsync};

/// `hipErrorInvalidMemcpyDirection`.
const INVALID_DIRECTION: Status = 21;
/// `hipMemcpyHostToHost`.
const HOST_TO_HOST: c_int = 0;
/// `hipMemcpyDefault`: the addresses tell.
const BY_ADDRESS: c_int = 4;

/// `hipMemcpyDeviceToDeviceNoCU`: the addresses tell.
const NO_COMPUTE_UNITS: c_int = 1024;

/// What is known of a range that a copy touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Memory of the device at this position.
    Device(usize),
    /// Page-locked host memory.
    Pinned,
    /// Memory that the library does not know.
    Unknown,
}

/// Where a range lies, for a copy by the device at a position; refuses one that is longer than its memory.
fn place(machine: &Machine, address: u64, bytes: u64, by: usize) -> Answer<Place> {
    let state = machine.state();
    if let Some((_, mapping)) = state.vm.mapping_of(address) {
        // Mappings that lie side by side are one range.
        refuse_if(state.vm.touched(address, bytes).is_none(), INVALID_VALUE)?;
        // A device with a right to it can copy it, wherever it is.
        let user = if mapping.rights.contains_key(&by) { Some(&by) } else { mapping.rights.keys().next() };
        return Ok(Place::Device(user.copied().unwrap_or(mapping.device)));
    }
    let Some((start, found)) = state.allocation_of(address) else { return Ok(Place::Unknown) };
    refuse_if(bytes > found.bytes - (address - start), INVALID_VALUE)?;
    Ok(if found.kind == Kind::Host { Place::Pinned } else { Place::Device(found.device) })
}

/// Whether the library can know the memory of a range; refuses one that is longer than it.
///
/// The sizes of what other processes share, of what graphs allocate and of what a bad pool gives out are not in the tables.
pub(crate) fn is_known(machine: &Machine, address: u64, bytes: u64) -> Answer<bool> {
    let is_in_tables = place(machine, address, bytes, 0)? != Place::Unknown;
    let state = machine.state();
    Ok(is_in_tables || machine.has_bad_pool || !state.recordings.are_empty() || !state.opened.is_empty())
}

/// Waits for the work of a stream.
fn wait_for(machine: &Machine, stream: StreamHandle) -> Answer {
    let (_, device, beneath) = machine.stream(stream)?;
    // SAFETY: 1. the table has it.
    unsafe { device.synchronize(beneath) }.map_err(status_of)
}

/// Copies on the host, behind the work of a stream.
///
/// # Safety
///
/// 1. Both ranges are valid.
unsafe fn copy_on_host(
    machine: &Machine,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    stream: StreamHandle,
) -> Answer {
    wait_for(machine, stream)?;
    // SAFETY: 1. is the caller's promise; the ranges of a copy may not overlap, but `copy` does not mind.
    unsafe { ptr::copy(from.cast::<u8>(), to.cast::<u8>(), bytes) };
    Ok(())
}

/// Copies by way of the host, for a stream of another device than the memory's: no right of that device is needed.
///
/// # Safety
///
/// 1. Both ranges are valid.
unsafe fn copy_between_devices(
    machine: &Machine,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    places: [Place; 2],
    stream: StreamHandle,
) -> Answer {
    wait_for(machine, stream)?;
    let mut between = vec![0_u8; bytes];
    let at = |address: usize| DevicePtr::new(address as u64).ok_or(INVALID_VALUE);
    if let Place::Device(position) = places[1] {
        let device = &machine.devices[position];
        let transfer = device.transfer().map_err(lacking)?;
        // SAFETY: 3. and 4. are promise 1, and the buffer is as long.
        unsafe { transfer.download(between.as_mut_ptr(), at(from.addr())?, bytes, StreamRef::DEFAULT) }
            .map_err(status_of)?;
        // SAFETY: 1. the default stream always lives.
        unsafe { device.synchronize(StreamRef::DEFAULT) }.map_err(status_of)?;
    } else {
        // SAFETY: 1. is the caller's promise, and the buffer is as long.
        unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), between.as_mut_ptr(), bytes) };
    }
    let Place::Device(position) = places[0] else {
        // SAFETY: 1. is the caller's promise, and the buffer is as long.
        unsafe { ptr::copy_nonoverlapping(between.as_ptr(), to.cast::<u8>(), bytes) };
        return Ok(());
    };
    let device = &machine.devices[position];
    let transfer = device.transfer().map_err(lacking)?;
    // SAFETY: 3. and 4. are promise 1, and the buffer is as long.
    unsafe { transfer.upload(at(to.addr())?, between.as_ptr(), bytes, StreamRef::DEFAULT) }.map_err(status_of)?;
    // SAFETY: 1. the default stream always lives.
    unsafe { device.synchronize(StreamRef::DEFAULT) }.map_err(status_of)
}

/// Queues a copy, in the direction that the addresses tell: AMD's library asks its tables and not the caller.
///
/// # Safety
///
/// 1. Both ranges are valid until the copy is done.
unsafe fn copy(
    machine: &Machine,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: c_int,
    stream: StreamHandle,
) -> Answer {
    refuse_if(!(HOST_TO_HOST..=BY_ADDRESS).contains(&kind) && kind != NO_COMPUTE_UNITS, INVALID_DIRECTION)?;
    if bytes == 0 {
        return Ok(());
    }
    refuse_if(to.is_null() || from.is_null(), INVALID_VALUE)?;
    let by = machine.any_stream(stream)?.0;
    let found = |address: usize| place(machine, address as u64, bytes as u64, by);
    let places = [found(to.addr())?, found(from.addr())?];
    let unknown = places == [Place::Unknown; 2];
    refuse_if(unknown && ![HOST_TO_HOST, BY_ADDRESS].contains(&kind), INVALID_VALUE)?;
    let is_elsewhere = |place: &Place| matches!(place, Place::Device(of) if *of != by);
    if places.iter().any(is_elsewhere) && !machine.state().captures.holds(stream) {
        // SAFETY: 1. is the caller's promise.
        return unsafe { copy_between_devices(machine, to, from, bytes, places, stream) };
    }
    let (at, origin) = (to.addr() as u64, from.addr() as u64);
    answer(match places.map(|place| matches!(place, Place::Device(_))) {
        // SAFETY: 1. is the caller's promise.
        [true, true] => unsafe { hipMemcpyDtoDAsync(at, origin, bytes as u64, stream) },
        // SAFETY: 1. is the caller's promise.
        [true, false] => unsafe { hipMemcpyHtoDAsync(at, from, bytes, stream) },
        // SAFETY: 1. is the caller's promise.
        [false, true] => unsafe { hipMemcpyDtoHAsync(to, origin, bytes, stream) },
        // SAFETY: 1. is the caller's promise.
        [false, false] => return unsafe { copy_on_host(machine, to, from, bytes, stream) },
    })
}

/// Declares copies whose names tell the direction, which the addresses tell too.
macro_rules! by_address {
    ($($name:ident)*) => {
        abi! {$(
            fn $name(machine; to: *mut c_void, from: *const c_void, bytes: usize) {
                // SAFETY: 1. is the caller's promise.
                at_once(machine, || unsafe { copy(machine, to, from, bytes, BY_ADDRESS, 0) })
            }
        )*}
    };
}

by_address! { hipMemcpyHtoD hipMemcpyDtoH hipMemcpyDtoD }

/// Does something in the default stream, which waits for the blocking streams, and waits until it is done.
///
/// Any capture forbids it.
fn at_once(machine: &Machine, act: impl FnOnce() -> Answer) -> Answer {
    let (position, device) = machine.current();
    refuse_if(machine.state().captures.are_recording(), CAPTURE_IMPLICIT)?;
    wait_for_blocking_streams(machine, device, position)?;
    act()?;
    // SAFETY: 1. the default stream always lives.
    unsafe { device.synchronize(StreamRef::DEFAULT) }.map_err(status_of)
}

abi! {
    fn hipMemcpy(machine; to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int) {
        // SAFETY: 1. is the caller's promise.
        at_once(machine, || unsafe { copy(machine, to, from, bytes, kind, 0) })
    }

    fn hipMemcpyAsync(
        machine;
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        kind: c_int,
        stream: StreamHandle,
    ) {
        // SAFETY: 1. is the caller's promise.
        unsafe { copy(machine, to, from, bytes, kind, stream) }
    }

    fn hipMemcpyWithStream(
        machine;
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        kind: c_int,
        stream: StreamHandle,
    ) {
        // SAFETY: 1. is the caller's promise.
        unsafe { copy(machine, to, from, bytes, kind, stream) }?;
        wait_for(machine, stream)
    }

    fn hipMemset(machine; to: Address, value: c_int, bytes: Bytes) {
        // SAFETY: the arguments are the caller's.
        at_once(machine, || answer(unsafe { hipMemsetAsync(to, value, bytes, 0) }))
    }
}
