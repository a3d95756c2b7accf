//! Allocation on a stream of cudarc.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Pod;
use cachette::hal::{AnyDevice, Device, StreamRef, Vendor};
use cachette::{Allocator, Stream};
use cudarc::driver::sys::CUstream;
use cudarc::driver::{CudaStream, DeviceRepr, DriverError, SyncOnDrop, ValidAsZeroBits};

use crate::error::Error;
use crate::slice::Slice;

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

/// Streams that a cache uses; they live as long as the process, because an allocator may.
static RETAINED: Mutex<Vec<Arc<CudaStream>>> = Mutex::new(Vec::new());

/// An allocator for one stream of cudarc.
///
/// It is a handle, to be cloned and shared between threads. The methods have the names of cudarc's.
pub struct StreamAllocator<D: Device = AnyDevice> {
    shared: Arc<Shared<D>>,
}

/// What an allocator for a stream and its slices share.
pub(crate) struct Shared<D: Device> {
    pub(crate) allocator: Allocator<D>,
    /// The same stream as `cudarc`.
    pub(crate) stream: Stream<D>,
    pub(crate) cudarc: Arc<CudaStream>,
}

impl<D: Device> StreamAllocator<D> {
    /// Lets `allocator` serve work in `stream`, which then lives as long as the process.
    pub fn new(allocator: &Allocator<D>, stream: &Arc<CudaStream>) -> Result<Self, Error> {
        let (info, context) = (allocator.device_info(), stream.context());
        if info.vendor != Vendor::Nvidia || info.ordinal.0 as usize != context.ordinal() {
            let allocator = format!("{} device {}", info.vendor, info.ordinal);
            return Err(Error::OtherDevice { stream: context.ordinal(), allocator });
        }
        if !context.is_primary() {
            return Err(Error::OtherContext);
        }
        if stream.cu_stream().addr() == PER_THREAD {
            return Err(Error::PerThreadStream);
        }
        retain(stream);
        // SAFETY: 1. The stream is live, and belongs to the primary context of the allocator's device.
        // 2. `RETAINED` keeps it as long as the process.
        let adopted = unsafe { allocator.adopt_stream(stream_ref(stream.cu_stream())) }?;
        let shared = Shared { allocator: allocator.clone(), stream: adopted, cudarc: Arc::clone(stream) };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The allocator beneath.
    #[must_use]
    pub fn allocator(&self) -> &Allocator<D> {
        &self.shared.allocator
    }

    /// cudarc's stream.
    #[must_use]
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.shared.cudarc
    }

    /// Allocates `len` elements that have whatever value the memory has.
    ///
    /// Every pattern of bits is a value of a [`Pod`] type, so unlike cudarc's `alloc` the call is safe.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Slice<T, D>, Error> {
        self.slice(len)
    }

    /// Allocates `len` elements, and queues that all their bytes become zero.
    pub fn alloc_zeros<T: DeviceRepr + ValidAsZeroBits>(&self, len: usize) -> Result<Slice<T, D>, Error> {
        let mut slice = self.slice(len)?;
        if len != 0 {
            self.shared.cudarc.memset_zeros(&mut slice)?;
        }
        Ok(slice)
    }

    /// Allocates as many elements as `source` has, and queues that they are copied from it.
    pub fn clone_htod<T: DeviceRepr>(&self, source: &[T]) -> Result<Slice<T, D>, Error> {
        let mut slice = self.slice(source.len())?;
        if !source.is_empty() {
            self.shared.cudarc.memcpy_htod(source, &mut slice)?;
        }
        Ok(slice)
    }

    /// A slice whose elements the caller writes, or whose type has no invalid values.
    fn slice<T>(&self, len: usize) -> Result<Slice<T, D>, Error> {
        let element_bytes = size_of::<T>();
        let too_many = cachette::Error::TooManyElements { len, element_bytes };
        let bytes = len.checked_mul(element_bytes).ok_or(too_many)?;
        let allocation = self.shared.allocator.allocate(bytes as u64, &self.shared.stream)?;
        Ok(Slice::new(allocation, len, Arc::clone(&self.shared)))
    }
}

impl<D: Device> Shared<D> {
    /// The allocator's name for a stream of its device, if the cache knows it.
    pub(crate) fn known(&self, stream: &CudaStream) -> Option<Stream<D>> {
        let handle = stream.cu_stream();
        let here = stream.context().ordinal() == self.cudarc.context().ordinal();
        if !here || !is_retained(stream) {
            return None;
        }
        // SAFETY: 1. The stream is live, and belongs to the device of this one's. 2. `RETAINED` keeps it.
        unsafe { self.allocator.adopt_stream(stream_ref(handle)) }.ok()
    }

    /// Orders a use by waits of the host, after events could not; cudarc's next call returns the failure.
    #[cold]
    pub(crate) fn settle<'a>(&self, stream: &'a CudaStream, failed: DriverError) -> SyncOnDrop<'a> {
        stream.context().record_err(self.cudarc.context().synchronize());
        stream.context().record_err(Err::<(), _>(failed));
        SyncOnDrop::Sync(Some(stream))
    }
}

impl<D: Device> Clone for StreamAllocator<D> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<D: Device> fmt::Debug for StreamAllocator<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamAllocator").field("stream", &self.shared.stream.handle()).finish_non_exhaustive()
    }
}

fn stream_ref(stream: CUstream) -> StreamRef {
    StreamRef::from_raw(stream.expose_provenance())
}

/// Whether `kept` is `stream`: the null stream of every device has the same handle.
fn is_same(kept: &CudaStream, stream: &CudaStream) -> bool {
    kept.cu_stream() == stream.cu_stream() && kept.context().cu_ctx() == stream.context().cu_ctx()
}

fn retain(stream: &Arc<CudaStream>) {
    let mut retained = RETAINED.lock().unwrap_or_else(PoisonError::into_inner);
    if !retained.iter().any(|kept| is_same(kept, stream)) {
        retained.push(Arc::clone(stream));
    }
}

fn is_retained(stream: &CudaStream) -> bool {
    RETAINED.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|kept| is_same(kept, stream))
}
