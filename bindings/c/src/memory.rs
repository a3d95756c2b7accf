//! Allocating and freeing device memory.

use std::ffi::c_void;

use cachette::Allocator;

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
    call!([any_handle(allocator)], free(&allocator.inner, address_of(address))?)
}

/// Writes whether the memory behind an address never changes while it is allocated or cached, so that it may be
/// registered: in a pool with `CACHETTE_POOL_REGISTERED`, in a direct segment, or outside the cache.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_is_stable(
    allocator: *const AllocatorHandle,
    address: *const c_void,
    out_stable: *mut bool,
) -> Status {
    call!([out(out_stable), handle(allocator)], *out_stable = allocator.inner.is_stable(address_of(address.cast_mut())))
}

/// Frees memory, and then withdraws it if a tensor of PyTorch over it was shared with other processes.
#[inline]
pub(crate) fn free(allocator: &Allocator, address: u64) -> Result<(), cachette::Error> {
    let freed = allocator.free_raw(address);
    #[cfg(feature = "torch")]
    cachette_torch::adapter::withdraw_freed(address, &freed);
    freed
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

#[cfg(all(test, feature = "host", feature = "torch"))]
mod tests {
    use std::ptr;

    use cachette_torch::adapter::{
        User, cachette_adapter_close_shared, cachette_adapter_open_shared, cachette_adapter_share,
    };

    use super::*;
    use crate::allocator::cachette_close;
    use crate::dlpack::cachette_dlpack_export;
    use crate::shared::{cachette_open_shared, cachette_start};

    unsafe extern "C-unwind" fn write(user: User, start: *const u8, bytes: usize) {
        // SAFETY: they are as many.
        let bytes = unsafe { std::slice::from_raw_parts(start, bytes) };
        // SAFETY: it is a vector of the caller.
        unsafe { &mut *user.0.cast::<Vec<u8>>() }.extend_from_slice(bytes);
    }

    /// Lets other processes open memory, as PyTorch does for a tensor over it.
    fn share(memory: *mut c_void) -> Vec<u8> {
        let mut handle = Vec::new();
        // SAFETY: 1. it gets a vector.
        unsafe { cachette_adapter_share(memory, write, User((&raw mut handle).cast())) };
        handle
    }

    fn can_be_opened(handle: &[u8]) -> bool {
        let mut at = ptr::null_mut();
        // SAFETY: 1. they are as many. 2. It may be written.
        let opened = unsafe { cachette_adapter_open_shared(0, handle.as_ptr(), handle.len(), &raw mut at) };
        // SAFETY: 1. it is used no more.
        unsafe { cachette_adapter_close_shared(opened) };
        !opened.is_null()
    }

    #[test]
    fn a_free_ends_the_offer_to_other_processes() {
        let (mut allocator, mut memory, mut tensor) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: 3. both texts end with a zero.
        assert_eq!(unsafe { cachette_start(c"host".as_ptr(), c"".as_ptr()) }, Status::Ok);
        // SAFETY: 2. it may be written.
        assert_eq!(unsafe { cachette_open_shared(0, &raw mut allocator) }, Status::Ok);
        // SAFETY: 1. it is open. 2. It may be written. 4. It is the default stream.
        let status = unsafe { cachette_allocate(allocator, 2 << 20, ptr::null_mut(), &raw mut memory) };
        assert_eq!(status, Status::Ok);
        let handle = share(memory);
        assert!(can_be_opened(&handle));
        // SAFETY: 1. it is open.
        assert_eq!(unsafe { cachette_free(allocator, memory) }, Status::Ok);
        assert!(!can_be_opened(&handle), "it was freed");

        // SAFETY: 1. it is open. 2. It may be written. 4. It is the default stream.
        let status = unsafe { cachette_allocate(allocator, 2 << 20, ptr::null_mut(), &raw mut memory) };
        assert_eq!(status, Status::Ok);
        let (shape, none, place) = ([2_i64 << 20], ptr::null_mut(), &raw mut tensor);
        // SAFETY: 1. to 4. as above. 5. No work uses it.
        let status =
            unsafe { cachette_dlpack_export(allocator, memory, 1, 8, shape.as_ptr(), 1, none, none, 0, place) };
        assert_eq!(status, Status::Ok);
        let handle = share(memory);
        let tensor = ptr::NonNull::new(tensor).unwrap();
        // SAFETY: it was made above, and is used no more.
        drop(unsafe { cachette_dlpack::Imported::from_unversioned(tensor.cast()) }.unwrap());
        assert!(!can_be_opened(&handle), "the deleter freed it");
        // SAFETY: 1. it is open, and used no more.
        assert_eq!(unsafe { cachette_close(allocator) }, Status::Ok);
    }
}
