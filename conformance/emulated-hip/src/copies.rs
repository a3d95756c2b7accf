//! Copies and fills that name no direction, or return when they are done.

use std::ffi::{c_int, c_void};
use std::ptr;

use cachette_hal::{Device, StreamRef};

use crate::prelude::*;
use crate::programs::{answer, wait_for_blocking_streams};
use crate::transfer::{hipMemcpyDtoDAsync, hipMemcpyDtoHAsync, hipMemcpyHtoDAsync, hipMemsetAsync};

/// `hipErrorInvalidMemcpyDirection`.
const INVALID_DIRECTION: Status = 21;
/// `hipMemcpyHostToHost`.
const HOST_TO_HOST: c_int = 0;
/// `hipMemcpyDefault`: the addresses tell.
const BY_ADDRESS: c_int = 4;

/// What is known of a range that a copy touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Memory of a device.
    Device,
    /// Page-locked host memory.
    Pinned,
    /// Memory that the library does not know.
    Unknown,
}

/// Where a range lies; refuses one that is longer than its memory.
fn place(machine: &Machine, address: u64, bytes: u64) -> Answer<Place> {
    let state = machine.state();
    if state.vm.mapping_of(address).is_some() {
        // Mappings that lie side by side are one range.
        let end = state.vm.touched(address, bytes);
        return if end.is_some() { Ok(Place::Device) } else { Err(INVALID_VALUE) };
    }
    let Some((start, found)) = state.allocation_of(address) else { return Ok(Place::Unknown) };
    refuse_if(bytes > found.bytes - (address - start), INVALID_VALUE)?;
    Ok(if found.kind == Kind::Host { Place::Pinned } else { Place::Device })
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
    let (_, device, beneath) = machine.stream(stream)?;
    // SAFETY: 1. the table has it.
    unsafe { device.synchronize(beneath) }.map_err(status_of)?;
    // SAFETY: 1. is the caller's promise; the ranges of a copy may not overlap, but `copy` does not mind.
    unsafe { ptr::copy(from.cast::<u8>(), to.cast::<u8>(), bytes) };
    Ok(())
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
    refuse_if(!(HOST_TO_HOST..=BY_ADDRESS).contains(&kind), INVALID_DIRECTION)?;
    if bytes == 0 {
        return Ok(());
    }
    refuse_if(to.is_null() || from.is_null(), INVALID_VALUE)?;
    let places = (place(machine, to.addr() as u64, bytes as u64)?, place(machine, from.addr() as u64, bytes as u64)?);
    let unknown = places == (Place::Unknown, Place::Unknown);
    refuse_if(unknown && ![HOST_TO_HOST, BY_ADDRESS].contains(&kind), INVALID_VALUE)?;
    let (at, origin) = (to.addr() as u64, from.addr() as u64);
    answer(match (places.0 == Place::Device, places.1 == Place::Device) {
        // SAFETY: 1. is the caller's promise.
        (true, true) => unsafe { hipMemcpyDtoDAsync(at, origin, bytes as u64, stream) },
        // SAFETY: 1. is the caller's promise.
        (true, false) => unsafe { hipMemcpyHtoDAsync(at, from, bytes, stream) },
        // SAFETY: 1. is the caller's promise.
        (false, true) => unsafe { hipMemcpyDtoHAsync(to, origin, bytes, stream) },
        // SAFETY: 1. is the caller's promise.
        (false, false) => return unsafe { copy_on_host(machine, to, from, bytes, stream) },
    })
}

/// Does something in the default stream, which waits for the blocking streams, and waits until it is done.
fn at_once(machine: &Machine, act: impl FnOnce() -> Answer) -> Answer {
    let (position, device) = machine.current();
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
        let (_, device, beneath) = machine.stream(stream)?;
        // SAFETY: 1. the table has it.
        unsafe { device.synchronize(beneath) }.map_err(status_of)
    }

    fn hipMemcpyHtoD(machine; to: *mut c_void, from: *const c_void, bytes: usize) {
        // SAFETY: 1. is the caller's promise.
        at_once(machine, || unsafe { copy(machine, to, from, bytes, BY_ADDRESS, 0) })
    }

    fn hipMemcpyDtoH(machine; to: *mut c_void, from: *const c_void, bytes: usize) {
        // SAFETY: 1. is the caller's promise.
        at_once(machine, || unsafe { copy(machine, to, from, bytes, BY_ADDRESS, 0) })
    }

    fn hipMemcpyDtoD(machine; to: *mut c_void, from: *const c_void, bytes: usize) {
        // SAFETY: 1. is the caller's promise.
        at_once(machine, || unsafe { copy(machine, to, from, bytes, BY_ADDRESS, 0) })
    }

    fn hipMemset(machine; to: Address, value: c_int, bytes: Bytes) {
        refuse_if(bytes > 0 && place(machine, to, bytes)? == Place::Unknown, INVALID_VALUE)?;
        // SAFETY: the arguments are the caller's.
        at_once(machine, || answer(unsafe { hipMemsetAsync(to, value, bytes, 0) }))
    }
}
