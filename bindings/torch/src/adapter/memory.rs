//! Freeing memory by its address.

use std::ffi::{c_int, c_void};

use cachette::Allocator;
use cachette_process as process;

use crate::entry::{ask_owner, guarded, of_memory, tell_of_free};
use crate::error::Error;
use crate::ipc;

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
