//! Sources of segments other than the device itself.
//!
//! A [`Source`] is two functions. An allocator caches the segments of a source and splits them
//! into blocks, like segments of the device. So memory that only a communication library can allocate serves ordinary
//! requests. [`FunctionSource`] builds a source from two Rust functions. The crate `cachette-sources` has sources for C
//! functions, NCCL, RCCL, NVSHMEM and rocSHMEM.
//!
//! ```
//! use cachette::source::{FunctionSource, AllocContext, Source, SourceError};
//! use cachette::hal::{DevicePtr, Ordinal, StreamRef};
//!
//! // SAFETY: 1. 2. 3. no work uses the numbers as addresses, and each is returned once.
//! let source = unsafe {
//!     FunctionSource::new(
//!         "numbers",
//!         |_bytes, _context| DevicePtr::new(0x7000).ok_or(SourceError::out_of_memory("none")),
//!         |_ptr, _bytes, _context| Ok(()),
//!     )
//! };
//! let context = AllocContext::new(Ordinal(0), StreamRef::DEFAULT);
//! // SAFETY: the functions use neither the stream nor the device.
//! let ptr = unsafe { source.allocate(4096, &context) }?;
//! assert_eq!(ptr.address(), 0x7000);
//! // SAFETY: no work uses it, and it was allocated with the same arguments.
//! unsafe { source.free(ptr, 4096, &context) }?;
//! # Ok::<(), SourceError>(())
//! ```

pub mod checks;
mod function;

use std::borrow::Cow;
use std::fmt::Debug;

use cachette_hal::{DevicePtr, Ordinal, StreamRef};

pub use function::FunctionSource;

/// The alignment that an allocator needs of every segment: that of its blocks.
pub const ALIGNMENT: u64 = 512;

/// The device and the stream that a segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllocContext {
    /// The device.
    pub device: Ordinal,
    /// The stream whose request needs the segment. The segment is freed with the same stream.
    pub stream: StreamRef,
}

impl AllocContext {
    /// A segment on `device`, for `stream`.
    #[must_use]
    pub const fn new(device: Ordinal, stream: StreamRef) -> Self {
        Self { device, stream }
    }
}

/// Allocates and frees segments.
///
/// Calls come from any thread, several at once. A pool keeps its source alive until the last segment is freed.
///
/// A source may allocate from other pools for its own work, but not return that memory. A request inside `allocate` or
/// `free` that needs a segment of the same source gets an error, because it would wait for itself. Other requests may
/// wait until a call returns. So a source must not wait for a thread that allocates, and must not hold a lock while it
/// allocates. Two sources must not allocate from each other's pools.
///
/// # Safety
///
/// Safe buffers write to the memory that a source returns, so:
///
/// 1. [`allocate`](Self::allocate) returns memory of `context.device` that is `bytes` long and overlaps nothing live.
/// 2. The memory stays valid until it is freed.
/// 3. A call that fails or panics has changed nothing: after a failed [`free`](Self::free) the memory is still valid.
///
/// The allocator rejects memory that overlaps what it already has, its blocks included, and an address that is not a
/// multiple of [`ALIGNMENT`].
pub unsafe trait Source: Debug + Send + Sync {
    /// The name of the source in reports.
    fn name(&self) -> &str;

    /// Allocates `bytes` bytes.
    ///
    /// # Safety
    ///
    /// 1. `context.stream` is a live stream of `context.device`, or the default one.
    /// 2. `context.device` is current on this thread, in the sense of its vendor.
    unsafe fn allocate(&self, bytes: u64, context: &AllocContext) -> Result<DevicePtr, SourceError>;

    /// Frees memory of [`allocate`](Self::allocate).
    ///
    /// # Safety
    ///
    /// 1. This source allocated `ptr`, with these `bytes` and this `context`, and has not freed it since.
    /// 2. No work uses it, neither queued nor running.
    /// 3. `context.device` is current on this thread, in the sense of its vendor.
    unsafe fn free(&self, ptr: DevicePtr, bytes: u64, context: &AllocContext) -> Result<(), SourceError>;
}

/// The kind of a failure, for code that handles kinds differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// The source has no memory left for this request; freeing some may help.
    OutOfMemory,
    /// The source cannot be used: its library, one of its functions or its device is missing.
    Unavailable,
    /// Anything else; a second attempt will not help.
    Other,
}

/// Why a call of a source failed: the kind, the cause, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}; {advice}")]
pub struct SourceError {
    kind: SourceErrorKind,
    text: String,
    advice: Cow<'static, str>,
}

impl SourceError {
    /// Creates an error from its cause and its remedy.
    pub fn new(kind: SourceErrorKind, text: impl Into<String>, advice: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, text: text.into(), advice: advice.into() }
    }

    /// The source has no memory left for this request.
    pub fn out_of_memory(text: impl Into<String>) -> Self {
        Self::new(SourceErrorKind::OutOfMemory, text, "free memory and try again")
    }

    /// The source cannot be used.
    pub fn unavailable(text: impl Into<String>, advice: impl Into<Cow<'static, str>>) -> Self {
        Self::new(SourceErrorKind::Unavailable, text, advice)
    }

    /// A failure that a second attempt does not resolve.
    pub fn other(text: impl Into<String>, advice: impl Into<Cow<'static, str>>) -> Self {
        Self::new(SourceErrorKind::Other, text, advice)
    }

    /// The kind of the failure.
    #[must_use]
    pub const fn kind(&self) -> SourceErrorKind {
        self.kind
    }

    /// The cause.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The remedy.
    #[must_use]
    pub fn advice(&self) -> &str {
        &self.advice
    }
}
