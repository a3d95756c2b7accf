//! The export of memory.

use std::ffi::c_void;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use cachette::Buffer;
use cachette::hal::Device;

use crate::abi::{DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLTensor, VERSION};
use crate::data_type::Element;
use crate::error::Error;

/// Memory with a type and a shape, ready for a consumer. The deleter drops `owner`, on the thread that calls it.
pub struct Tensor<O> {
    owner: O,
    address: u64,
    device: DLDevice,
    data_type: DLDataType,
    shape: Vec<i64>,
}

impl<O: Send + 'static> Tensor<O> {
    /// A compact tensor in row-major order at `address`, in the first of the `bytes` bytes that `owner` keeps alive.
    pub fn new(
        owner: O,
        address: u64,
        bytes: u64,
        device: DLDevice,
        data_type: DLDataType,
        shape: &[i64],
    ) -> Result<Self, Error> {
        let needed = bytes_of(data_type, shape)?;
        if needed.is_none_or(|needed| needed > bytes) {
            return Err(Error::Shape { shape: shape.to_vec(), needed, bytes });
        }
        Ok(Self { owner, address, device, data_type, shape: shape.to_vec() })
    }

    /// The same tensor with another owner, which keeps the same memory alive.
    pub fn with_owner<P: Send + 'static>(self, owner: P) -> Tensor<P> {
        let Self { address, device, data_type, shape, .. } = self;
        Tensor { owner, address, device, data_type, shape }
    }

    /// The structure of version 1.0 and later. It is lost unless its deleter is called.
    #[must_use = "its deleter is the only way to free the memory"]
    pub fn into_versioned(self) -> NonNull<DLManagedTensorVersioned> {
        self.into_managed(|dl_tensor| DLManagedTensorVersioned {
            version: VERSION,
            manager_ctx: ptr::null_mut(),
            deleter: Some(delete::<DLManagedTensorVersioned, O>),
            flags: 0,
            dl_tensor,
        })
    }

    /// The structure before version 1.0. It is lost unless its deleter is called.
    #[must_use = "its deleter is the only way to free the memory"]
    pub fn into_unversioned(self) -> NonNull<DLManagedTensor> {
        self.into_managed(|dl_tensor| DLManagedTensor {
            dl_tensor,
            manager_ctx: ptr::null_mut(),
            deleter: Some(delete::<DLManagedTensor, O>),
        })
    }

    fn into_managed<M>(self, manage: impl FnOnce(DLTensor) -> M) -> NonNull<M> {
        let ndim = self.shape.len();
        let mut lengths = self.shape;
        lengths.extend(compact_strides(&lengths));
        // The structure points into the list, so both get their places first.
        let lengths = Box::leak(lengths.into_boxed_slice());
        let first = lengths.as_mut_ptr();
        let tensor = DLTensor {
            data: pointer(self.address),
            device: self.device,
            // `bytes_of` has counted them.
            ndim: i32::try_from(ndim).unwrap_or(i32::MAX),
            dtype: self.data_type,
            shape: first,
            strides: first.wrapping_add(ndim),
            byte_offset: 0,
        };
        let managed = Managed { tensor: manage(tensor), lengths: NonNull::from(lengths), owner: self.owner };
        NonNull::from(Box::leak(Box::new(managed))).cast()
    }
}

impl<O> fmt::Debug for Tensor<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("address", &format_args!("{:#x}", self.address))
            .field("device", &self.device)
            .field("data_type", &self.data_type)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

/// Memory that becomes a tensor.
pub trait IntoDlpack {
    /// What the deleter drops.
    type Owner;

    /// A compact tensor of this shape, in row-major order. The shape has as many elements as there are.
    fn into_dlpack(self, shape: &[i64]) -> Result<Tensor<Self::Owner>, Error>;
}

impl<T: Element, D: Device + 'static> IntoDlpack for Buffer<T, D> {
    type Owner = Self;

    fn into_dlpack(self, shape: &[i64]) -> Result<Tensor<Self>, Error> {
        let bytes = self.allocation().requested();
        let needed = bytes_of(T::DATA_TYPE, shape)?;
        if needed != Some(bytes) {
            return Err(Error::Shape { shape: shape.to_vec(), needed, bytes });
        }
        let address = self.allocation().address();
        let device = crate::device_of(self.stream().device().info());
        Tensor::new(self, address, bytes, device, T::DATA_TYPE, shape)
    }
}

/// What a consumer gets the address of, with what it does not see.
#[repr(C)]
struct Managed<M, O> {
    /// The first field, so that its address is that of the whole.
    tensor: M,
    /// The shape, then the strides. The structure above has pointers into it, so no box may own it meanwhile.
    lengths: NonNull<[i64]>,
    owner: O,
}

/// Drops a tensor. A panic ends here, since the caller may be C.
///
/// # Safety
///
/// 1. `tensor` is of [`Tensor::into_managed`] with the same types, and is not used after this.
unsafe extern "C" fn delete<M, O>(tensor: *mut M) {
    if tensor.is_null() {
        return;
    }
    // SAFETY: 1. is the caller's promise: `into_managed` leaked such a box.
    let managed = unsafe { Box::from_raw(tensor.cast::<Managed<M, O>>()) };
    // SAFETY: 1. `into_managed` leaked it as a box too, and the structure that points into it is not used any more.
    let lengths = unsafe { Box::from_raw(managed.lengths.as_ptr()) };
    // No caller can receive the error.
    let _ = catch_unwind(AssertUnwindSafe(|| drop((managed, lengths))));
}

/// The bytes of a compact tensor; `None` if they are too many to count.
pub(crate) fn bytes_of(data_type: DLDataType, shape: &[i64]) -> Result<Option<u64>, Error> {
    if i32::try_from(shape.len()).is_err() || shape.iter().any(|length| *length < 0) {
        return Err(Error::NoShape { shape: shape.to_vec() });
    }
    if data_type.bytes() == 0 {
        return Err(Error::Malformed { missing: "an element type of no bits" });
    }
    if shape.contains(&0) {
        return Ok(Some(0));
    }
    let mut lengths = shape.iter().map(|length| length.unsigned_abs());
    Ok(lengths.try_fold(data_type.bytes(), u64::checked_mul))
}

/// The strides of a compact tensor in row-major order, in elements.
pub(crate) fn compact_strides(shape: &[i64]) -> Vec<i64> {
    let mut step = 1_i64;
    let mut strides: Vec<_> = shape
        .iter()
        .rev()
        .map(|length| {
            let this = step;
            // A tensor without elements may have lengths whose product is too large.
            step = step.saturating_mul((*length).max(1));
            this
        })
        .collect();
    strides.reverse();
    strides
}

#[expect(clippy::cast_possible_truncation, reason = "the crate `cachette_hal` builds only where both have 64 bits")]
const fn pointer(address: u64) -> *mut c_void {
    ptr::without_provenance_mut(address as usize)
}
