//! Memory by its address.

use std::ffi::{c_int, c_void};

use cachette::hal::StreamRef;
use cachette::{Allocator, Label};
use cachette_process as process;

use crate::entry::{allocator_of, ask_owner, guarded, of_memory, or_raise, tell_of_free, with_vendor};
use crate::error::Error;
use crate::ipc;

/// Allocates exactly the memory at an address, which is free memory of the stream and of the pool that serves the request.
///
/// # Safety
///
/// 1. `stream` is a live stream of `device`, or null.
/// 2. It stays so as long as the process allocates on the device.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_allocate_at(
    ptr: *mut c_void,
    bytes: usize,
    device: c_int,
    stream: *mut c_void,
) {
    let stream = StreamRef::from_raw(stream as usize);
    or_raise(|| {
        let allocator = allocator_of(device)?;
        // SAFETY: 1. and 2. are the caller's promises; allocators of the plug-in live as long as the process.
        let allocated = unsafe { allocator.allocate_raw_at(ptr as u64, bytes as u64, stream, Label::TORCH) };
        with_vendor(allocator, allocated)
    });
}

/// Frees memory of [`cachette_torch_alloc`](crate::cachette_torch_alloc) on any device; null is ignored.
///
/// It never throws. Unknown addresses are counted; see [`counters`](crate::counters).
///
/// # Safety
///
/// 1. Work in the stream of the allocation, and in streams recorded for it, is all that uses the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_free(ptr: *mut c_void) {
    if let Err(error) = process::guarded(|| free(ptr as u64)) {
        tell_of_free(&error);
    }
}

#[inline]
fn free(address: u64) -> Result<(), Box<Error>> {
    // Most processes use only the first device. In a forked child it does nothing.
    let Some(allocator) = process::existing(0) else { return free_elsewhere(address) };
    ipc::withdraw(address);
    match allocator.free_raw(address) {
        Ok(()) => Ok(()),
        Err(cachette::Error::InvalidPointer { .. }) => free_elsewhere(address),
        Err(error) => Err(of_memory(allocator, error).into()),
    }
}

#[cold]
fn free_elsewhere(address: u64) -> Result<(), Box<Error>> {
    if address == 0 || process::is_forked() {
        return Ok(());
    }
    ipc::withdraw(address);
    Ok(ask_owner(|allocator| allocator.free_raw(address))?)
}

/// The size of the block at an address, and its device; 0 and no device if the address is unknown.
///
/// # Safety
///
/// 1. `device` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_bytes(ptr: *mut c_void, device: *mut c_int) -> u64 {
    let ask = |allocator: &'static Allocator| {
        let bytes = allocator.bytes_at(ptr as u64)?;
        Ok((bytes, allocator.device_info().ordinal.0))
    };
    let found = guarded(|| ask_owner(ask));
    let (bytes, owner) = found.map_or((0, -1), |(bytes, owner)| (bytes, owner.cast_signed()));
    // SAFETY: 1. is the caller's promise.
    unsafe { device.write(owner) };
    bytes
}
