//! Requests of other libraries to the allocators of the process.

use std::ffi::{c_int, c_void};
use std::ptr;

use cachette::hal::{ErrorKind, StreamRef};
use cachette::{Allocator, Label};
use cachette_process::{Error, FirstOnly, guarded};

/// Failed frees; the first is written to stderr.
static FAILED_FREES: FirstOnly = FirstOnly::new();

/// Allocates for a library that calls with the device's number. A panic is an error too.
///
/// # Safety
///
/// 1. `stream` is a live stream of the device, and stays so as long as the process allocates there.
pub(crate) unsafe fn allocate(bytes: usize, device: c_int, stream: StreamRef, label: Label) -> Result<u64, Error> {
    guarded(|| {
        let number = u32::try_from(device).map_err(|_| Error::NoSuchDevice { device: device.into() })?;
        let allocator = cachette_process::allocator(number)?;
        // SAFETY: 1. is the caller's promise; allocators of the process live as long as it.
        Ok(unsafe { allocator.allocate_raw_as(bytes as u64, stream, label) }?)
    })
}

/// Allocates the last-freed block if it serves. It never waits, so the interpreter may stay attached.
///
/// # Safety
///
/// As for [`allocate`].
pub(crate) unsafe fn allocate_last_freed(bytes: usize, device: c_int, stream: StreamRef, label: Label) -> Option<u64> {
    let found = guarded(|| {
        let allocator = usize::try_from(device).ok().and_then(cachette_process::find);
        // SAFETY: 1. is the caller's promise; allocators of the process live as long as it.
        let allocate = |it: &Allocator| unsafe { it.allocate_raw_last_freed(bytes as u64, stream, label) };
        Ok::<_, Error>(allocator.and_then(allocate))
    });
    found.ok().flatten()
}

/// Frees what [`allocate`] gave; null is ignored. Nothing happens in a forked child.
///
/// Libraries free in destructors, so a failure is written to stderr, once. What fails at the end of the process needs
/// no line.
pub(crate) fn free(pointer: *mut c_void, device: c_int) {
    let freed = guarded(|| {
        let allocator = usize::try_from(device).ok().and_then(cachette_process::find);
        match allocator {
            Some(allocator) => {
                let address = pointer.addr() as u64;
                let freed = allocator.free_raw(address);
                cachette_torch::adapter::withdraw_freed(address, &freed);
                Ok::<_, Error>(freed?)
            }
            None => Ok(()),
        }
    });
    match freed {
        Ok(()) => {}
        Err(Error::Memory(cachette::Error::Device(why))) if why.kind() == ErrorKind::ShuttingDown => {}
        Err(why) => FAILED_FREES.tell(format_args!("memory was not freed: {why}; later failures are not written")),
    }
}

/// A device address as a C pointer; the host never reads it.
#[expect(clippy::cast_possible_truncation, reason = "the crate `cachette_hal` builds only where both have 64 bits")]
pub(crate) const fn pointer(address: u64) -> *mut c_void {
    ptr::without_provenance_mut(address as usize)
}
