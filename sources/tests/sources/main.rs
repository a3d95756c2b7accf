//! The promises of the sources, without a GPU.
//!
//! [`fake`] builds a shared library that imitates those of the vendors, if there is a C compiler.

mod absent;
mod fake;
mod nccl;
mod nvshmem;
mod rocshmem;

use cachette::hal::{DevicePtr, Ordinal, StreamRef};
use cachette::source::{AllocContext, Source, SourceError};

/// The default stream of the first device.
const HERE: AllocContext = AllocContext::new(Ordinal(0), StreamRef::DEFAULT);

fn allocate(source: &dyn Source, bytes: u64, context: &AllocContext) -> Result<DevicePtr, SourceError> {
    // SAFETY: 1. every test passes the default stream. 2. The fake has no current device.
    unsafe { source.allocate(bytes, context) }
}

fn free(source: &dyn Source, ptr: DevicePtr, bytes: u64, context: &AllocContext) -> Result<(), SourceError> {
    // SAFETY: 1. it came from there. 2. no work uses it. 3. The fake has no current device.
    unsafe { source.free(ptr, bytes, context) }
}
