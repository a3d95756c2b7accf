//! A program that allocates as candle does.
//!
//! candle's `CudaDevice` allocates every tensor with `CudaStream::alloc` of the crate cudarc and frees it when it is
//! dropped. This crate does the same, and leaves out the kernels, so that it also runs without a GPU. candle links the
//! driver (`dynamic-linking` of cudarc), so the next line is all that its users write:

#[cfg(feature = "cachette")]
use cachette_front as _;

use std::sync::Arc;

use cudarc::driver::result::{free_async, malloc_async};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError};

/// A device as candle has it: one stream, on which everything is allocated and runs.
///
/// It is the device of candle's `Device::new_cuda_with_stream`. `Device::new_cuda` uses the default stream of each
/// thread. One handle names the streams of all threads there, so those requests go to the driver.
#[derive(Debug)]
pub struct Device {
    stream: Arc<CudaStream>,
}

/// A tensor of one dimension.
#[derive(Debug)]
pub struct Tensor {
    elements: CudaSlice<u32>,
}

impl Device {
    /// Opens a device.
    pub fn new(ordinal: usize) -> Result<Self, DriverError> {
        Ok(Self { stream: CudaContext::new(ordinal)?.new_stream()? })
    }

    /// A tensor with these elements.
    pub fn tensor(&self, elements: &[u32]) -> Result<Tensor, DriverError> {
        Ok(Tensor { elements: self.stream.clone_htod(elements)? })
    }

    /// A tensor of zeros.
    pub fn zeros(&self, len: usize) -> Result<Tensor, DriverError> {
        Ok(Tensor { elements: self.stream.alloc_zeros(len)? })
    }

    /// Stops cudarc from making two events for each tensor, as candle's method of this name does.
    ///
    /// # Safety
    ///
    /// 1. The program uses tensors in no other stream, or orders those uses itself.
    pub unsafe fn disable_event_tracking(&self) {
        // SAFETY: the caller's promise 1.
        unsafe { self.stream.context().disable_event_tracking() };
    }

    /// Allocates a tensor without writing it, and frees it.
    pub fn pair(&self, len: usize) -> Result<(), DriverError> {
        // SAFETY: nothing reads the elements.
        unsafe { self.stream.alloc::<u32>(len) }.map(drop)
    }

    /// The same without a tensor: the two calls of the driver.
    pub fn raw_pair(&self, bytes: usize) -> Result<(), DriverError> {
        // SAFETY: the stream is live.
        let address = unsafe { malloc_async(self.stream.cu_stream(), bytes) }?;
        // SAFETY: the memory was allocated above, on the same stream, and nothing uses it.
        unsafe { free_async(address, self.stream.cu_stream()) }
    }

    /// Waits for the work that is queued.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        self.stream.synchronize()
    }
}

impl Tensor {
    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// A new tensor in which every element is one place further, and the last is the first.
    ///
    /// # Panics
    ///
    /// If there are no elements.
    pub fn rotated(&self, device: &Device) -> Result<Self, DriverError> {
        let mut next = device.zeros(self.len())?;
        let last = self.len() - 1;
        device.stream.memcpy_dtod(&self.elements.slice(..last), &mut next.elements.slice_mut(1..))?;
        device.stream.memcpy_dtod(&self.elements.slice(last..), &mut next.elements.slice_mut(..1))?;
        Ok(next)
    }

    /// The elements.
    pub fn to_vec(&self, device: &Device) -> Result<Vec<u32>, DriverError> {
        device.stream.clone_dtoh(&self.elements)
    }
}
