//! The errors of the crate.

use cudarc::driver::DriverError;

/// Why memory could not be allocated, or a stream not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The allocator failed.
    #[error(transparent)]
    Allocator(#[from] cachette::Error),
    /// A call of cudarc failed.
    #[error("the CUDA driver failed: {0}")]
    Driver(#[from] DriverError),
    /// The stream and the allocator have different devices.
    #[error(
        "the stream belongs to CUDA device {stream} and the allocator to {allocator}; open the allocator with \
         `Backends::open(\"cuda:{stream}\")`"
    )]
    OtherDevice {
        /// The position of the stream's device.
        stream: usize,
        /// The allocator's device.
        allocator: String,
    },
    /// The stream belongs to a context that the allocator does not use.
    #[error(
        "the stream's context is not the primary context of its device, which the allocator uses; make the context \
         with `CudaContext::new`"
    )]
    OtherContext,
    /// The handle of the per-thread stream is a different stream on every thread.
    #[error(
        "the per-thread stream is a different one on every thread, so freed memory has no order there; use \
         `CudaContext::new_stream` or `default_stream`"
    )]
    PerThreadStream,
}
