//! The import of tensors.

use std::ptr::NonNull;
use std::slice;

use crate::abi::{DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLTensor, READ_ONLY, VERSION};
use crate::error::Error;
use crate::export::{bytes_of, compact_strides};

/// A compact, writable tensor of another library; dropped, it runs the deleter.
///
/// Drop it after the work that uses the memory has finished, or is ordered before what the producer queues next.
#[derive(Debug)]
pub struct Imported {
    managed: AnyManaged,
    /// Counted when it was opened.
    bytes: u64,
}

#[derive(Debug)]
enum AnyManaged {
    Versioned(NonNull<DLManagedTensorVersioned>),
    Unversioned(NonNull<DLManagedTensor>),
}

// SAFETY: DLPack lets the deleter run on any thread, and shared references only read.
unsafe impl Send for Imported {}
// SAFETY: as above.
unsafe impl Sync for Imported {}

impl Imported {
    /// Takes over a tensor of version 1.0 or later. On failure it stays the caller's.
    ///
    /// # Safety
    ///
    /// 1. `tensor` is whole, as its version says, and stays so until its deleter runs.
    /// 2. After a success the caller neither uses nor deletes it.
    pub unsafe fn from_versioned(tensor: NonNull<DLManagedTensorVersioned>) -> Result<Self, Error> {
        // SAFETY: 1. is the caller's promise; the version comes first in every layout.
        let DLManagedTensorVersioned { version, .. } = unsafe { tensor.as_ref() };
        if version.major != VERSION.major {
            return Err(Error::Version { major: version.major });
        }
        // SAFETY: 1. is the caller's promise.
        let whole = unsafe { tensor.as_ref() };
        if whole.flags & READ_ONLY != 0 {
            return Err(Error::ReadOnly);
        }
        // SAFETY: 1. is the caller's promise.
        let bytes = unsafe { check(&whole.dl_tensor) }?;
        Ok(Self { managed: AnyManaged::Versioned(tensor), bytes })
    }

    /// Takes over a tensor from before version 1.0. On failure it stays the caller's.
    ///
    /// # Safety
    ///
    /// As for [`from_versioned`](Self::from_versioned).
    pub unsafe fn from_unversioned(tensor: NonNull<DLManagedTensor>) -> Result<Self, Error> {
        // SAFETY: 1. is the caller's promise.
        let whole = unsafe { tensor.as_ref() };
        // SAFETY: 1. is the caller's promise.
        let bytes = unsafe { check(&whole.dl_tensor) }?;
        Ok(Self { managed: AnyManaged::Unversioned(tensor), bytes })
    }

    fn tensor(&self) -> &DLTensor {
        match &self.managed {
            // SAFETY: 1. of `from_versioned`: it is whole until the deleter runs.
            AnyManaged::Versioned(tensor) => &unsafe { tensor.as_ref() }.dl_tensor,
            // SAFETY: 1. of `from_unversioned`: it is whole until the deleter runs.
            AnyManaged::Unversioned(tensor) => &unsafe { tensor.as_ref() }.dl_tensor,
        }
    }

    /// The address of the first element.
    #[must_use]
    pub fn address(&self) -> u64 {
        (self.tensor().data.addr() as u64).wrapping_add(self.tensor().byte_offset)
    }

    /// The bytes of all elements.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where it is.
    #[must_use]
    pub fn device(&self) -> DLDevice {
        self.tensor().device
    }

    /// The type of its elements.
    #[must_use]
    pub fn data_type(&self) -> DLDataType {
        self.tensor().dtype
    }

    /// Its lengths.
    #[must_use]
    pub fn shape(&self) -> &[i64] {
        let tensor = self.tensor();
        // SAFETY: `check` has read the list, and it is whole until the deleter runs.
        unsafe { list(tensor.shape, tensor.ndim) }
    }

    /// Fails unless it is on `wanted`.
    pub fn check_device(&self, wanted: DLDevice) -> Result<(), Error> {
        let found = self.device();
        if found == wanted { Ok(()) } else { Err(Error::Device { found, wanted }) }
    }

    /// Gives the tensor back to the caller without running the deleter: its address.
    #[must_use = "its deleter is the only way to free the memory"]
    pub fn into_raw(self) -> NonNull<()> {
        let raw = match &self.managed {
            AnyManaged::Versioned(tensor) => tensor.cast(),
            AnyManaged::Unversioned(tensor) => tensor.cast(),
        };
        let _ = std::mem::ManuallyDrop::new(self);
        raw
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        match self.managed {
            AnyManaged::Versioned(tensor) => {
                // SAFETY: 1. of `from_versioned`: it is whole.
                if let Some(deleter) = unsafe { tensor.as_ref() }.deleter {
                    // SAFETY: 2. of `from_versioned`: this owner deletes it, once.
                    unsafe { deleter(tensor.as_ptr()) }
                }
            }
            AnyManaged::Unversioned(tensor) => {
                // SAFETY: 1. of `from_unversioned`: it is whole.
                if let Some(deleter) = unsafe { tensor.as_ref() }.deleter {
                    // SAFETY: 2. of `from_unversioned`: this owner deletes it, once.
                    unsafe { deleter(tensor.as_ptr()) }
                }
            }
        }
    }
}

/// Checks a tensor; its bytes.
///
/// # Safety
///
/// 1. Its lists are null, or have `ndim` entries.
unsafe fn check(tensor: &DLTensor) -> Result<u64, Error> {
    let ndim = tensor.ndim;
    if ndim < 0 {
        return Err(Error::Malformed { missing: "a negative number of dimensions" });
    }
    if ndim > 0 && tensor.shape.is_null() {
        return Err(Error::Malformed { missing: "no shape" });
    }
    // SAFETY: 1. is the caller's promise.
    let shape = unsafe { list(tensor.shape, ndim) };
    let bytes = bytes_of(tensor.dtype, shape)?;
    let bytes = bytes.ok_or(Error::Malformed { missing: "more bytes than can be counted" })?;
    if bytes > 0 && tensor.data.is_null() {
        return Err(Error::Malformed { missing: "no memory" });
    }
    let end = (tensor.data.addr() as u64).checked_add(tensor.byte_offset).and_then(|first| first.checked_add(bytes));
    if end.is_none() {
        return Err(Error::Malformed { missing: "addresses that do not exist" });
    }
    if bytes > 0 && !tensor.strides.is_null() {
        // SAFETY: 1. is the caller's promise.
        let strides = unsafe { list(tensor.strides, ndim) };
        // The step over a dimension of length 1 is never taken.
        let mut steps = shape.iter().zip(strides).zip(compact_strides(shape));
        if steps.any(|((length, given), compact)| *length != 1 && *given != compact) {
            return Err(Error::NotCompact { shape: shape.to_vec(), strides: strides.to_vec() });
        }
    }
    Ok(bytes)
}

/// The entries of a list of a tensor.
///
/// # Safety
///
/// 1. `first` is null, or there are `count` entries, which live as long as is said.
unsafe fn list<'a>(first: *const i64, count: i32) -> &'a [i64] {
    match usize::try_from(count) {
        Ok(count) if count > 0 && !first.is_null() => {
            // SAFETY: 1. is the caller's promise.
            unsafe { slice::from_raw_parts(first, count) }
        }
        _ => &[],
    }
}
