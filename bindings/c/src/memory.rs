//! Allocating and freeing device memory.

use std::ffi::c_void;

use crate::allocator::AllocatorHandle;
use crate::convert::{address_of, pointer_to, stream_of};
use crate::guard::{call, promises};
use crate::status::Status;

/// Allocates `bytes` bytes of device memory for work in `stream`, a handle of the vendor; NULL is the default stream.
///
/// Work that is queued in `stream` may use the memory at once. For 0 bytes it writes NULL. The stream must stay alive
/// until the allocator is closed.
#[doc = promises!("1, 2 and 4")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_allocate(
    allocator: *mut AllocatorHandle,
    bytes: u64,
    stream: *mut c_void,
    out_address: *mut *mut c_void,
) -> Status {
    call!([out(out_address), any_handle(allocator)], {
        // SAFETY: 4. is the caller's promise.
        let address = unsafe { allocator.inner.allocate_raw_as(bytes, stream_of(stream), allocator.label) }?;
        *out_address = pointer_to(address);
    })
}

/// Frees memory of any pool. NULL is ignored.
///
/// The next request of the same stream may get the memory at once, since a stream runs in order. If other streams use
/// it, call `cachette_record_stream` first. Any thread may free it.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_free(allocator: *mut AllocatorHandle, address: *mut c_void) -> Status {
    call!([any_handle(allocator)], allocator.inner.free_raw(address_of(address))?)
}

/// Records that `stream` uses the memory too.
///
/// After it is freed, it is not reused until the work that is in `stream` at that time has finished. The stream that it
/// was allocated for needs no record. A NULL address is ignored.
#[doc = promises!("1 and 4")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_record_stream(
    allocator: *mut AllocatorHandle,
    address: *mut c_void,
    stream: *mut c_void,
) -> Status {
    call!([handle(allocator)], {
        let (address, stream) = (address_of(address), stream_of(stream));
        // SAFETY: 4. is the caller's promise.
        unsafe { allocator.inner.record_stream_raw(address, stream) }?;
    })
}

/// Writes the start and size of the segment that contains live memory, as drivers and other processes need them.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_base_allocation(
    allocator: *const AllocatorHandle,
    address: *mut c_void,
    out_base: *mut *mut c_void,
    out_bytes: *mut u64,
) -> Status {
    call!([out(out_base), out(out_bytes), handle(allocator)], {
        let (base, bytes) = allocator.inner.base_allocation(address_of(address))?;
        (*out_base, *out_bytes) = (pointer_to(base), bytes);
    })
}

/// Writes the requested size of the memory at an address.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_requested_bytes(
    allocator: *const AllocatorHandle,
    address: *mut c_void,
    out_bytes: *mut u64,
) -> Status {
    call!([out(out_bytes), handle(allocator)], {
        *out_bytes = allocator.inner.requested_at(address_of(address))?;
    })
}
