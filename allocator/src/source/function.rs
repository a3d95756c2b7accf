//! A source made of two functions.

use std::fmt;

use cachette_hal::DevicePtr;

use super::checks::{aligned, check_bytes};
use super::{ALIGNMENT, AllocContext, Source, SourceError};

type AllocateFn = dyn Fn(u64, &AllocContext) -> Result<DevicePtr, SourceError> + Send + Sync;
type FreeFn = dyn Fn(DevicePtr, u64, &AllocContext) -> Result<(), SourceError> + Send + Sync;

/// A source made of two functions.
///
/// If `allocate` returns an address that is not a multiple of [`ALIGNMENT`], the source frees it and returns an error.
pub struct FunctionSource {
    name: String,
    allocate: Box<AllocateFn>,
    free: Box<FreeFn>,
}

impl FunctionSource {
    /// Creates a source called `name` that calls `allocate` and `free`.
    ///
    /// # Safety
    ///
    /// 1. 2. 3. The functions keep the promises of [`Source`].
    pub unsafe fn new(
        name: impl Into<String>,
        allocate: impl Fn(u64, &AllocContext) -> Result<DevicePtr, SourceError> + Send + Sync + 'static,
        free: impl Fn(DevicePtr, u64, &AllocContext) -> Result<(), SourceError> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), allocate: Box::new(allocate), free: Box::new(free) }
    }
}

impl fmt::Debug for FunctionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionSource").field("name", &self.name).finish_non_exhaustive()
    }
}

// SAFETY: 1. 2. 3. the functions keep them, by the promise of `new`.
unsafe impl Source for FunctionSource {
    fn name(&self) -> &str {
        &self.name
    }

    unsafe fn allocate(&self, bytes: u64, context: &AllocContext) -> Result<DevicePtr, SourceError> {
        check_bytes(&self.name, bytes)?;
        let ptr = (self.allocate)(bytes, context)?;
        aligned(&self.name, ptr, ALIGNMENT, || (self.free)(ptr, bytes, context))
    }

    unsafe fn free(&self, ptr: DevicePtr, bytes: u64, context: &AllocContext) -> Result<(), SourceError> {
        (self.free)(ptr, bytes, context)
    }
}
