//! The vendor's stream-ordered pool.

use std::fmt::Debug;

use crate::{DevicePtr, Result, StreamRef};

/// The vendor's stream-ordered pool: always the device's default pool, even if another one is current.
pub trait StreamOrdered: Debug + Send + Sync {
    /// Allocates memory. Work queued in `stream` from now on may use it.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuMemAllocAsync")]
    #[doc(alias = "cuMemAllocFromPoolAsync")]
    #[doc(alias = "hipMallocAsync")]
    #[doc(alias = "hipMallocFromPoolAsync")]
    unsafe fn allocate_on(&self, bytes: u64, stream: StreamRef) -> Result<DevicePtr>;

    /// Frees memory once all work queued in `stream` so far has finished.
    ///
    /// # Safety
    ///
    /// Promise 1; promise 2 for work in other streams and for work queued in this one later.
    #[doc(alias = "cuMemFreeAsync")]
    #[doc(alias = "hipFreeAsync")]
    unsafe fn free_on(&self, ptr: DevicePtr, stream: StreamRef) -> Result<()>;

    /// Returns unused memory of the pool to the device, down to `keep` bytes.
    #[doc(alias = "cuMemPoolTrimTo")]
    #[doc(alias = "hipMemPoolTrimTo")]
    fn trim(&self, keep: u64) -> Result<()>;
}
