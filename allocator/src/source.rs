//! Where segments come from, other than the device itself.
//!
//! A [`Source`] is two functions and some hooks. What an allocator takes from one it caches and cuts into blocks like
//! any other segment; so memory that only a communication library can make serves ordinary requests.
//!
//! | source | memory |
//! |---|---|
//! | [`FunctionSource`] | of two functions: closures, C functions, or symbols of a shared library |
//! | [`Nccl`] | that NCCL or RCCL can register without a copy |
//! | [`Nvshmem`] | symmetric on NVIDIA's devices: at the same offset in every rank |
//! | [`Rocshmem`] | symmetric on AMD's devices |
//!
//! ```
//! use cachette::source::{FunctionSource, AllocContext, Source, SourceError};
//! use cachette::hal::{DevicePtr, Ordinal, StreamRef};
//!
//! // SAFETY: 1. 2. 3. no work uses the numbers as addresses, and each is given once.
//! let source = unsafe {
//!     FunctionSource::new(
//!         "numbers",
//!         |_bytes, _place| DevicePtr::new(0x7000).ok_or(SourceError::out_of_memory("none")),
//!         |_ptr, _bytes, _place| Ok(()),
//!     )
//! };
//! let place = AllocContext::new(Ordinal(0), StreamRef::DEFAULT);
//! // SAFETY: the functions do not look at the stream.
//! let ptr = unsafe { source.allocate(4096, &place) }?;
//! assert_eq!(ptr.address(), 0x7000);
//! // SAFETY: nobody uses it, and it goes back as it came.
//! unsafe { source.free(ptr, 4096, &place) }?;
//! # Ok::<(), SourceError>(())
//! ```

mod accept;
mod c_functions;
mod convert;
mod current;
mod error;
mod function;
mod library;
mod nccl;
mod nvshmem;
mod rocshmem;

use std::fmt::Debug;

use cachette_hal::{DevicePtr, Ordinal, StreamRef};

pub use c_functions::{
    CAllocate, CBaseAllocation, CBeginPool, CEndPool, CFree, CHooks, CInit, CMemoryFraction, CPoolId, CRecordStream,
    CReset, HookNames,
};
pub use error::{SourceError, SourceErrorKind};
pub use function::FunctionSource;
pub use nccl::Nccl;
pub use nvshmem::{Nvshmem, NvshmemLibrary, NvshmemStatus, UniqueId};
pub use rocshmem::Rocshmem;

/// The alignment that an allocator needs of every segment: that of its blocks.
pub const ALIGNMENT: u64 = 512;

/// Where memory is wanted, and who will use it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AllocContext {
    /// The device.
    pub device: Ordinal,
    /// The stream whose request needs the memory; when it goes back, the same one.
    pub stream: StreamRef,
}

impl AllocContext {
    /// A place on `device`, for `stream`.
    #[must_use]
    pub const fn new(device: Ordinal, stream: StreamRef) -> Self {
        Self { device, stream }
    }
}

/// A pool's name as its source is told it: `(0, n)` made by a user, `(n, 0)` by a capture.
pub type PoolPair = (u64, u64);

/// Makes segments and takes them back.
///
/// Calls come from any thread, several at once. A pool keeps its source alive until the last segment has gone back.
/// Only the first three methods are needed; the rest are told what happens, and by default do not care.
///
/// A source may ask the allocator for memory of other pools. A request inside `allocate` or `free` that needs a segment
/// of the same source gets an error: it would wait for itself. Other requests may wait until a call returns. So a source
/// must not wait for a thread that asks for memory, must not hold a lock while it asks, and two sources must not ask each
/// other's pools.
///
/// # Safety
///
/// Safe buffers write where a source says, so:
///
/// 1. [`allocate`](Self::allocate) returns memory of `place.device` that is `bytes` long and overlaps nothing live.
/// 2. The memory stays valid until it is freed.
/// 3. A call that fails or panics has changed nothing: after a failed [`free`](Self::free) the memory is still valid.
///
/// Memory that overlaps another segment of the same allocator is refused with an error. So is an address that is not a
/// multiple of [`alignment`](Self::alignment).
pub unsafe trait Source: Debug + Send + Sync {
    /// The name that reports use.
    fn name(&self) -> &str;

    /// Makes `bytes` bytes.
    ///
    /// # Safety
    ///
    /// 1. `place.stream` is a live stream of `place.device`, or the default one.
    unsafe fn allocate(&self, bytes: u64, place: &AllocContext) -> Result<DevicePtr, SourceError>;

    /// Takes back what [`allocate`](Self::allocate) made.
    ///
    /// # Safety
    ///
    /// 1. `ptr` was made by this source, with these `bytes` and at this place, and was not freed since.
    /// 2. No work uses it, neither queued nor running.
    unsafe fn free(&self, ptr: DevicePtr, bytes: u64, place: &AllocContext) -> Result<(), SourceError>;

    /// What every address is a multiple of; a power of two, and at least [`ALIGNMENT`] to be of use to an allocator.
    fn alignment(&self) -> u64 {
        ALIGNMENT
    }

    /// Whether a pool may take elastic segments from the device beside those of this source.
    ///
    /// They would not be this source's memory. So it is no, unless whoever made the source said so.
    fn permits_elastic(&self) -> bool {
        false
    }

    /// An allocator begins to use the source; the driver shows so many devices.
    fn started(&self, devices: u32) {
        let _ = devices;
    }

    /// The caches were emptied.
    fn emptied(&self) {}

    /// The share of a device's memory that may be held was set.
    fn limited(&self, fraction: f64, device: Ordinal) {
        let _ = (fraction, device);
    }

    /// The allocation that `ptr` lies in, by its start and its size; `None` if the source does not know.
    ///
    /// # Safety
    ///
    /// 1. `ptr` lies in memory that this source made and that is live.
    unsafe fn base_allocation(&self, ptr: DevicePtr) -> Option<(DevicePtr, u64)> {
        let _ = ptr;
        None
    }

    /// Another stream uses the memory.
    ///
    /// # Safety
    ///
    /// 1. `ptr` lies in memory that this source made and that is live.
    /// 2. `stream` is a live stream of the same device, or the default one.
    unsafe fn record_stream(&self, ptr: DevicePtr, stream: StreamRef) {
        let _ = (ptr, stream);
    }

    /// Requests on `device` begin to be served by a pool.
    fn began(&self, device: Ordinal, pool: PoolPair) {
        let _ = (device, pool);
    }

    /// Requests on `device` are no longer served by the pool.
    fn ended(&self, device: Ordinal, pool: PoolPair) {
        let _ = (device, pool);
    }

    /// The pool has no user any more.
    fn released(&self, device: Ordinal, pool: PoolPair) {
        let _ = (device, pool);
    }
}

// A pool holds its source as an object.
const _: Option<&dyn Source> = None;
