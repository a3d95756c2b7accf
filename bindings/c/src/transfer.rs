//! Fills and copies in stream order.

use std::ffi::c_void;

use cachette::hal::Device;

use crate::allocator::AllocatorHandle;
use crate::convert::{device_pointer, stream_of};
use crate::failure::Failure;
use crate::guard::{call, promises};
use crate::status::Status;

/// Queues a fill of `bytes` bytes at `address` with `byte`.
#[doc = promises!("1, 4 and 5")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_fill(
    allocator: *mut AllocatorHandle,
    address: *mut c_void,
    byte: u8,
    bytes: u64,
    stream: *mut c_void,
) -> Status {
    call!([handle(allocator)], {
        let at = device_pointer(address, "address")?;
        let transfer = allocator.inner.device().transfer()?;
        // SAFETY: 4. and 5. are the caller's promises.
        unsafe { transfer.fill(at, byte, bytes, stream_of(stream)) }?;
    })
}

/// Queues a copy from device memory to device memory. The ranges must not overlap.
#[doc = promises!("1, 4 and 5")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_copy(
    allocator: *mut AllocatorHandle,
    to: *mut c_void,
    from: *mut c_void,
    bytes: u64,
    stream: *mut c_void,
) -> Status {
    call!([handle(allocator)], {
        let (to, from) = (device_pointer(to, "to")?, device_pointer(from, "from")?);
        let transfer = allocator.inner.device().transfer()?;
        // SAFETY: 4. and 5. are the caller's promises.
        unsafe { transfer.copy(to, from, bytes, stream_of(stream)) }?;
    })
}

/// Queues a copy from host memory, which must stay unchanged until the copy has finished.
#[doc = promises!("1, 4 and 5")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_upload(
    allocator: *mut AllocatorHandle,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    stream: *mut c_void,
) -> Status {
    call!([handle(allocator)], {
        let to = device_pointer(to, "to")?;
        if from.is_null() {
            return Err(Failure::null("from"));
        }
        let transfer = allocator.inner.device().transfer()?;
        // SAFETY: 4. and 5. are the caller's promises.
        unsafe { transfer.upload(to, from.cast(), bytes, stream_of(stream)) }?;
    })
}

/// Queues a copy to host memory, which must stay valid and unused until the copy has finished.
#[doc = promises!("1, 4 and 5")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_download(
    allocator: *mut AllocatorHandle,
    to: *mut c_void,
    from: *mut c_void,
    bytes: usize,
    stream: *mut c_void,
) -> Status {
    call!([handle(allocator)], {
        if to.is_null() {
            return Err(Failure::null("to"));
        }
        let from = device_pointer(from, "from")?;
        let transfer = allocator.inner.device().transfer()?;
        // SAFETY: 4. and 5. are the caller's promises.
        unsafe { transfer.download(to.cast(), from, bytes, stream_of(stream)) }?;
    })
}
