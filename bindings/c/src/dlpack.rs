//! Tensors of DLPack: the structures in which libraries pass memory to each other.

use std::ffi::c_void;
use std::ptr::NonNull;

use cachette::Allocator;
use cachette_dlpack::abi::{DLDataType, VERSION};
use cachette_dlpack::{Imported, Tensor, device_of, order};

use crate::allocator::AllocatorHandle;
use crate::convert::{address_of, pointer_to, stream_of};
use crate::failure::Failure;
use crate::guard::{call, promises};
use crate::memory;
use crate::status::Status;

/// Memory of a tensor; dropped, it goes back to its allocator.
struct Exported {
    allocator: Allocator,
    address: u64,
}

impl Drop for Exported {
    fn drop(&mut self) {
        // A deleter cannot return a failure, and the allocator will try again.
        let _ = memory::free(&self.allocator, self.address);
    }
}

/// Makes a tensor of DLPack of memory from `cachette_allocate`, compact and in row-major order.
///
/// `code` and `bits` are those of `DLDataType`, such as 2 and 32 for `float`; `shape` has `ndim` lengths. With `major`
/// 1 it writes a `DLManagedTensorVersioned *`, with 0 a `DLManagedTensor *`. The tensor owns the memory: its deleter
/// frees it, also after the allocator was closed, and `cachette_free` must not be called. On failure the memory stays
/// the caller's.
///
/// `stream` is the stream of the memory and `consumer` that of the library that gets the tensor. If they differ, the
/// consumer's stream waits on the device for the work that `stream` has now. The memory is reused only after the work
/// that the consumer's stream has when it calls the deleter.
#[doc = promises!("1, 2, 3, 4 and 5")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_dlpack_export(
    allocator: *mut AllocatorHandle,
    address: *mut c_void,
    code: u8,
    bits: u8,
    shape: *const i64,
    ndim: usize,
    stream: *mut c_void,
    consumer: *mut c_void,
    major: u32,
    out_tensor: *mut *mut c_void,
) -> Status {
    call!([out(out_tensor), handle(allocator), list(shape, ndim)], {
        check_major(major)?;
        let inner = &allocator.inner;
        let address = address_of(address);
        let bytes = if address == 0 { 0 } else { inner.bytes_at(address)? };
        let data_type = DLDataType { code, bits, lanes: 1 };
        let device = device_of(inner.device_info());
        // It owns nothing yet, so that a failure frees nothing.
        let tensor = Tensor::new((), address, bytes, device, data_type, shape)?;
        let (stream, consumer) = (stream_of(stream), stream_of(consumer));
        if stream != consumer && address != 0 {
            // SAFETY: 4. is the caller's promise.
            unsafe { order(inner.device(), stream, consumer) }?;
            // SAFETY: 4. is the caller's promise.
            unsafe { inner.record_stream_raw(address, consumer) }?;
        }
        let tensor = tensor.with_owner(Exported { allocator: inner.clone(), address });
        *out_tensor = match major {
            0 => tensor.into_unversioned().as_ptr().cast(),
            _ => tensor.into_versioned().as_ptr().cast(),
        };
    })
}

/// Reads a tensor of another library: a `DLManagedTensorVersioned *` with `major` 1, a `DLManagedTensor *` with 0.
///
/// It writes the address and the bytes of the elements. It fails if the tensor is not on the allocator's device, is not
/// compact in row-major order, or must not be written. The tensor stays the caller's: call its deleter when the work
/// that uses the memory has finished.
#[doc = promises!("1, 2 and 3")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_dlpack_import(
    allocator: *const AllocatorHandle,
    tensor: *mut c_void,
    major: u32,
    out_address: *mut *mut c_void,
    out_bytes: *mut u64,
) -> Status {
    call!([out(out_address), out(out_bytes), handle(allocator)], {
        check_major(major)?;
        let tensor = NonNull::new(tensor).ok_or_else(|| Failure::null("tensor"))?;
        let imported = match major {
            // SAFETY: 3. is the caller's promise. The tensor is given back below.
            0 => unsafe { Imported::from_unversioned(tensor.cast()) },
            // SAFETY: 3. is the caller's promise. The tensor is given back below.
            _ => unsafe { Imported::from_versioned(tensor.cast()) },
        }?;
        let (found, address, bytes) =
            (imported.check_device(device_of(allocator.inner.device_info())), imported.address(), imported.bytes());
        // The deleter is the caller's to run.
        let _ = imported.into_raw();
        found?;
        (*out_address, *out_bytes) = (pointer_to(address), bytes);
    })
}

fn check_major(major: u32) -> Result<(), Failure> {
    if major > VERSION.major {
        return Err(Failure::argument(format!("there is no version {major} of DLPack here; pass 0 or 1 as `major`")));
    }
    Ok(())
}
