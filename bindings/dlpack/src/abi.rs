//! The structures of `dlpack.h`, with its names.

use std::ffi::c_void;

/// `kDLCPU`: host memory.
pub const CPU: i32 = 1;
/// `kDLCUDA`: memory of a CUDA device.
pub const CUDA: i32 = 2;
/// `kDLROCM`: memory of a ROCm device.
pub const ROCM: i32 = 10;

/// `DLPACK_FLAG_BITMASK_READ_ONLY`: the consumer must not write.
pub const READ_ONLY: u64 = 1;

/// The version that exported tensors have. Later minor versions have the same layout.
pub const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 0 };

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDevice {
    /// The kind of device, such as [`CUDA`].
    pub device_type: i32,
    /// The number of the device; 0 for host memory.
    pub device_id: i32,
}

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDataType {
    /// The kind of number: 0 signed, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool.
    pub code: u8,
    /// Bits of one lane.
    pub bits: u8,
    /// Lanes of an element; 1 unless it is a vector.
    pub lanes: u16,
}

/// A tensor without an owner.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLTensor {
    /// The address of the memory.
    pub data: *mut c_void,
    /// Where the memory is.
    pub device: DLDevice,
    /// The number of dimensions.
    pub ndim: i32,
    /// The type of the elements.
    pub dtype: DLDataType,
    /// `ndim` lengths.
    pub shape: *mut i64,
    /// `ndim` steps in elements; null for a compact tensor in row-major order.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// A tensor with its owner, before version 1.0.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// A value of the producer.
    pub manager_ctx: *mut c_void,
    /// Gives the tensor back; the consumer calls it once.
    pub deleter: Option<unsafe extern "C" fn(this: *mut Self)>,
}

/// A version of DLPack. A consumer reads no more than the deleter of a tensor with a major version it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLPackVersion {
    /// Changes with the layout.
    pub major: u32,
    /// Changes with the meaning of values.
    pub minor: u32,
}

/// A tensor with its owner, from version 1.0 on.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// The version of this structure.
    pub version: DLPackVersion,
    /// A value of the producer.
    pub manager_ctx: *mut c_void,
    /// Gives the tensor back; the consumer calls it once.
    pub deleter: Option<unsafe extern "C" fn(this: *mut Self)>,
    /// [`READ_ONLY`] and other bits.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}
