//! Memory that is shared between processes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cachette::hal::Guarded;
use cachette::{ImportedMemory, SharedMemory};
use cachette_process as process;

use crate::arguments::User;
use crate::entry::{allocator_of, ask_owner, or_raise, pointer, with_vendor};
use crate::error::Error;

/// Allocations that other processes can open, by address, until they are freed. Importers keep the memory longer.
static EXPORTED: Guarded<Option<HashMap<u64, SharedMemory>>> = Guarded::new(None);
/// Whether anything was ever exported. Relaxed: the thread that frees an allocation has seen its export.
static ANY: AtomicBool = AtomicBool::new(false);

/// Withdraws the export of an allocation that is about to be freed, if there is one.
///
/// Other libraries of the process call it too: a tensor over their memory may have been shared.
#[inline]
pub fn withdraw(address: u64) {
    if ANY.load(Relaxed) {
        withdraw_exported(address);
    }
}

/// Withdraws the export of an allocation after its free, unless the address was wrong. Its block is not reused before
/// the export ends, so no other allocation has the address yet.
#[inline]
pub fn withdraw_freed(address: u64, freed: &Result<(), cachette::Error>) {
    if !matches!(freed, Err(cachette::Error::InvalidPointer { .. })) {
        withdraw(address);
    }
}

#[cold]
fn withdraw_exported(address: u64) {
    // The lock of the parent may never be released in a forked child.
    if process::is_forked() {
        return;
    }
    let withdrawn = EXPORTED.lock().as_mut().and_then(|all| all.remove(&address));
    // Without the lock, as the drop may free memory.
    drop(withdrawn);
}

/// Memory of another process, opened here.
#[derive(Debug)]
pub struct Opened(ImportedMemory);

/// Lets other processes of this user open an allocation until it is freed, and passes its handle to `write`.
///
/// # Safety
///
/// 1. `write` may be called with `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_share(
    ptr: *mut c_void,
    write: unsafe extern "C-unwind" fn(user: User, handle: *const u8, bytes: usize),
    user: User,
) {
    let handle = or_raise(|| share(ptr as u64));
    // SAFETY: 1. is the caller's promise.
    unsafe { write(user, handle.as_ptr(), handle.len()) };
}

fn share(address: u64) -> Result<Vec<u8>, Error> {
    // The lock of the parent may never be released in a forked child.
    if process::is_forked() {
        return Err(process::Error::Forked.into());
    }
    if let Some(known) = EXPORTED.lock().as_ref().and_then(|all| all.get(&address)) {
        return Ok(known.handle());
    }
    let shared = ask_owner(|allocator| allocator.share_raw(address))?;
    ANY.store(true, Relaxed);
    let mut all = EXPORTED.lock();
    match all.get_or_insert_default().entry(address) {
        // Another thread was faster, and its handle is in use. The new one is dropped without the lock.
        Entry::Occupied(known) => Ok(known.get().handle()),
        Entry::Vacant(place) => Ok(place.insert(shared).handle()),
    }
}

/// Opens memory that another process has shared, and writes its address. [`cachette_adapter_close_shared`] closes it.
///
/// # Safety
///
/// 1. `handle` points to `bytes` bytes.
/// 2. `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_open_shared(
    device: c_int,
    handle: *const u8,
    bytes: usize,
    out: *mut *mut c_void,
) -> *mut Opened {
    let opened = or_raise(|| {
        let handle = match bytes {
            0 => &[],
            // SAFETY: 1. is the caller's promise.
            _ => unsafe { slice::from_raw_parts(handle, bytes) },
        };
        let allocator = allocator_of(device)?;
        with_vendor(allocator, allocator.open_shared(handle)).map(Some)
    });
    let Some(opened) = opened else { return ptr::null_mut() };
    // SAFETY: 2. is the caller's promise.
    unsafe { out.write(pointer(opened.address())) };
    Box::into_raw(Box::new(Opened(opened)))
}

/// Waits for the device and closes the memory. Null is allowed.
///
/// # Safety
///
/// 1. It is from [`cachette_adapter_open_shared`], and is not used after this.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_close_shared(opened: *mut Opened) {
    if !opened.is_null() {
        // SAFETY: 1. is the caller's promise.
        drop(unsafe { Box::from_raw(opened) }.0);
    }
}
