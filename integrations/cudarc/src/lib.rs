//! Cachette as the allocator of all slices of a cudarc context.
//!
//! cudarc needs `device-allocator.patch`. Then one line after a context was made is enough:
//!
//! ```no_run
//! let context = cudarc::driver::CudaContext::new(0)?;
//! cachette_cudarc_allocator::install(&context, cachette_process::allocator(0)?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Order between streams
//!
//! Memory belongs to the stream of its slice. cudarc lets that stream wait for uses in other streams before it frees a
//! slice, so the memory can serve the stream at once, and the waits order its next use.
//!
//! # What the driver still serves
//!
//! - The default stream of a thread: one handle names the streams of all threads.
//! - Borrowed streams: their owner may destroy them, and the cache uses a stream as long as it lives. A borrowed stream
//!   that lives as long gets cached memory once it was adopted by [`Allocator::adopt_stream`].
//! - Requests in a capture: they belong to the graph. Cached memory cannot be freed in a capture, as with the driver.
//!
//! Streams that cudarc created are kept as long as the process, with their context. So make streams once, and not one for
//! each piece of work.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cachette::hal::{ErrorKind, StreamRef, Vendor};
use cachette::{Allocator, Label, PointerProblem};
use cudarc::driver::sys::{CUdeviceptr, CUstreamCaptureStatus, cudaError_enum as Status};
use cudarc::driver::{CudaContext, CudaStream, DeviceAllocator, DriverError, result};

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`; greater handles are addresses.
const LAST_SPECIAL: usize = 2;

/// Streams that a cache uses, by their handles.
static KEPT: Mutex<BTreeMap<usize, Arc<CudaStream>>> = Mutex::new(BTreeMap::new());

/// Why a context cannot allocate from a cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The context and the allocator have different devices.
    #[error(
        "the context belongs to CUDA device {context} and the allocator to {allocator}; open the allocator with \
         `Backends::open(\"cuda:{context}\")`"
    )]
    OtherDevice {
        /// The position of the context's device.
        context: usize,
        /// The allocator's device.
        allocator: String,
    },
    /// The allocator uses the primary context of its device.
    #[error("the context is not the primary context of its device, which the allocator uses; use `CudaContext::new`")]
    OtherContext,
    /// The context allocates elsewhere.
    #[error(
        "the context has allocated memory or has an allocator; install the cache directly after `CudaContext::new`"
    )]
    TooLate,
}

/// Serves all slices of `context` from `allocator`, from now on.
pub fn install(context: &Arc<CudaContext>, allocator: &Allocator) -> Result<(), Error> {
    let info = allocator.device_info();
    if info.vendor != Vendor::Nvidia || info.ordinal.0 as usize != context.ordinal() {
        let allocator = format!("{} device {}", info.vendor, info.ordinal);
        return Err(Error::OtherDevice { context: context.ordinal(), allocator });
    }
    if !context.is_primary() {
        return Err(Error::OtherContext);
    }
    let memory = CachedMemory { allocator: allocator.clone(), label: Label::new("cudarc") };
    context.set_allocator(Arc::new(memory)).map_err(|_| Error::TooLate)
}

#[derive(Debug)]
struct CachedMemory {
    allocator: Allocator,
    /// How snapshots show the memory.
    label: Label,
}

// SAFETY: Cachette's blocks are device memory of the primary context, which `install` checks, and no two overlap. A block
// is reused behind the work that its stream had when it was freed. The driver makes the same promises.
unsafe impl DeviceAllocator for CachedMemory {
    fn alloc(&self, stream: &Arc<CudaStream>, num_bytes: usize) -> Result<CUdeviceptr, DriverError> {
        let Some(known) = self.served(stream).filter(|_| !is_capturing(stream)) else {
            // SAFETY: the stream is live.
            return unsafe { result::malloc_async(stream.cu_stream(), num_bytes) };
        };
        // SAFETY: 1. The stream is live, and of the allocator's device, as its context is. 2. See `served`.
        let allocated = unsafe { self.allocator.allocate_raw_as(num_bytes as u64, known, self.label) };
        allocated.map_err(|error| DriverError(status(&error)))
    }

    unsafe fn free(&self, stream: &Arc<CudaStream>, ptr: CUdeviceptr) -> Result<(), DriverError> {
        let freed = match self.served(stream) {
            Some(_) if is_capturing(stream) => self.refuse(ptr),
            // SAFETY: 1. The stream is live, and of the allocator's device. 2. See `served`.
            Some(known) => unsafe { self.allocator.free_raw_after(ptr, known) },
            None => self.free_idle(stream, ptr)?,
        };
        match freed {
            Err(cachette::Error::InvalidPointer { why: PointerProblem::Foreign, .. }) => {
                // SAFETY: it is the memory that `alloc` had from the driver, and all uses are ordered before the free.
                unsafe { result::free_async(ptr, stream.cu_stream()) }
            }
            freed => freed.map_err(|error| DriverError(status(&error))),
        }
    }
}

impl CachedMemory {
    /// A stream that may have cached memory, because it lives as long as the cache.
    fn served(&self, stream: &Arc<CudaStream>) -> Option<StreamRef> {
        match stream.cu_stream().expose_provenance() {
            0 => Some(StreamRef::DEFAULT),
            1..=LAST_SPECIAL => None,
            handle => {
                let known = StreamRef::from_raw(handle);
                (self.allocator.has_stream(known) || keep(stream)).then_some(known)
            }
        }
    }

    /// Frees memory on a stream that may end before the cache, which therefore cannot wait for it later.
    fn free_idle(&self, stream: &CudaStream, ptr: CUdeviceptr) -> Result<Result<(), cachette::Error>, DriverError> {
        if let Err(foreign) = self.allocator.bytes_at(ptr) {
            return Ok(Err(foreign));
        }
        stream.synchronize()?;
        Ok(self.allocator.free_raw(ptr))
    }

    /// The captured work may use the memory whenever the graph is launched. The driver refuses this too.
    fn refuse(&self, ptr: CUdeviceptr) -> Result<(), cachette::Error> {
        let invalid = cachette::hal::Error::new(ErrorKind::InvalidValue, "free in a capture");
        self.allocator.bytes_at(ptr).and(Err(invalid.into()))
    }
}

/// Keeps a stream that cudarc would destroy. Returns whether it is such a stream.
#[cold]
fn keep(stream: &Arc<CudaStream>) -> bool {
    let is_owned = stream.is_owned();
    if is_owned {
        let handle = stream.cu_stream().addr();
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        kept.entry(handle).or_insert_with(|| Arc::clone(stream));
    }
    is_owned
}

/// Whether work in the stream is recorded for a graph. The default stream cannot be captured.
fn is_capturing(stream: &CudaStream) -> bool {
    let handle = stream.cu_stream();
    // SAFETY: the stream is live.
    let status = || unsafe { result::stream::is_capturing(handle) };
    !handle.is_null() && !matches!(status(), Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE))
}

/// The driver's word for an error.
#[cold]
fn status(error: &cachette::Error) -> Status {
    if error.is_out_of_memory() {
        return Status::CUDA_ERROR_OUT_OF_MEMORY;
    }
    match error {
        cachette::Error::InvalidPointer { .. } => Status::CUDA_ERROR_INVALID_VALUE,
        cachette::Error::UnknownStream { .. } => Status::CUDA_ERROR_INVALID_HANDLE,
        // As the driver says in a forked child.
        cachette::Error::Forked => Status::CUDA_ERROR_NOT_INITIALIZED,
        cachette::Error::Device(error) => match error.kind() {
            ErrorKind::InvalidValue => Status::CUDA_ERROR_INVALID_VALUE,
            ErrorKind::InvalidHandle => Status::CUDA_ERROR_INVALID_HANDLE,
            ErrorKind::CaptureForbids => Status::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            ErrorKind::CaptureBroken => Status::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            ErrorKind::Unsupported => Status::CUDA_ERROR_NOT_SUPPORTED,
            ErrorKind::Fault => Status::CUDA_ERROR_ILLEGAL_ADDRESS,
            ErrorKind::ShuttingDown => Status::CUDA_ERROR_DEINITIALIZED,
            _ => Status::CUDA_ERROR_UNKNOWN,
        },
        _ => Status::CUDA_ERROR_UNKNOWN,
    }
}
