//! Fills and copies in stream order.

use std::fmt::Debug;

use crate::{DevicePtr, Result, StreamRef};

/// Fills and copies in stream order.
///
/// An access to unmapped addresses, which breaks promise 3, is always reported: by the call, or by a later one as
/// [`ErrorKind::Fault`](crate::ErrorKind::Fault).
pub trait Transfer: Debug + Send + Sync {
    /// Sets every byte.
    ///
    /// # Safety
    ///
    /// Promises 1 and 3.
    #[doc(alias = "cuMemsetD8Async")]
    #[doc(alias = "hipMemsetAsync")]
    unsafe fn fill(&self, at: DevicePtr, byte: u8, bytes: u64, stream: StreamRef) -> Result<()>;

    /// Copies between addresses of the device, or to or from a peer that it may access.
    ///
    /// # Safety
    ///
    /// Promises 1 and 3; the ranges do not overlap.
    #[doc(alias = "cuMemcpyDtoDAsync_v2")]
    #[doc(alias = "hipMemcpyDtoDAsync")]
    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: u64, stream: StreamRef) -> Result<()>;

    /// Copies from the host to the device.
    ///
    /// # Safety
    ///
    /// Promises 1, 3 and 4.
    #[doc(alias = "cuMemcpyHtoDAsync_v2")]
    #[doc(alias = "hipMemcpyHtoDAsync")]
    unsafe fn upload(&self, to: DevicePtr, from: *const u8, bytes: usize, stream: StreamRef) -> Result<()>;

    /// Copies from the device to the host.
    ///
    /// # Safety
    ///
    /// Promises 1, 3 and 4.
    #[doc(alias = "cuMemcpyDtoHAsync_v2")]
    #[doc(alias = "hipMemcpyDtoHAsync")]
    unsafe fn download(&self, to: *mut u8, from: DevicePtr, bytes: usize, stream: StreamRef) -> Result<()>;
}
