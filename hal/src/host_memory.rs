//! Page-locked host memory.

use std::fmt::Debug;
use std::ptr::NonNull;

use crate::{DevicePtr, Result};

/// Page-locked host memory: the device reaches it, and copies from it run asynchronously.
pub trait HostMemory: Debug + Send + Sync {
    /// Allocates page-locked memory; may wait for the whole device.
    ///
    /// Every byte is initialised, to zero or by an earlier use, so the host may read it at once. Drivers get the pages
    /// from the operating system, which clears them; a backend that cannot rely on that clears them itself.
    #[doc(alias = "cuMemHostAlloc")]
    #[doc(alias = "hipHostMalloc")]
    fn allocate_pinned(&self, bytes: usize) -> Result<NonNull<u8>>;

    /// Frees page-locked memory; may wait for the whole device.
    ///
    /// # Safety
    ///
    /// Promises 1 and 2; `ptr` is what [`allocate_pinned`](Self::allocate_pinned) returned.
    #[doc(alias = "cuMemFreeHost")]
    #[doc(alias = "hipHostFree")]
    unsafe fn free_pinned(&self, ptr: NonNull<u8>) -> Result<()>;

    /// Page-locks memory of the caller.
    ///
    /// # Safety
    ///
    /// The range is valid host memory, and stays so until [`unregister`](Self::unregister).
    #[doc(alias = "cuMemHostRegister_v2")]
    #[doc(alias = "hipHostRegister")]
    unsafe fn register(&self, ptr: NonNull<u8>, bytes: usize) -> Result<()>;

    /// Reverses [`register`](Self::register).
    ///
    /// # Safety
    ///
    /// Promises 1 and 2; `ptr` was registered.
    #[doc(alias = "cuMemHostUnregister")]
    #[doc(alias = "hipHostUnregister")]
    unsafe fn unregister(&self, ptr: NonNull<u8>) -> Result<()>;

    /// The device's address of page-locked memory.
    ///
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) if `ptr` is not page-locked.
    #[doc(alias = "cuMemHostGetDevicePointer_v2")]
    #[doc(alias = "hipHostGetDevicePointer")]
    fn device_address(&self, ptr: NonNull<u8>) -> Result<DevicePtr>;
}
