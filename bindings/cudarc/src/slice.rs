//! A slice of device memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use cachette::Allocation;
use cachette::hal::{AnyDevice, Device};
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, DriverError, SyncOnDrop};

use crate::stream::Shared;
use crate::uses::Uses;
use crate::view::{View, ViewMut, bounds};

/// Elements of device memory that cudarc's calls take; a drop frees them.
///
/// A drop is ordered after all uses through cudarc's traits. Work that is queued with the [`address`](Self::address) is
/// ordered only in the slice's own stream.
pub struct Slice<T, D: Device = AnyDevice> {
    allocation: Allocation<D>,
    len: usize,
    shared: Arc<Shared<D>>,
    uses: Uses,
    element: PhantomData<T>,
}

impl<T, D: Device> Slice<T, D> {
    pub(crate) fn new(allocation: Allocation<D>, len: usize, shared: Arc<Shared<D>>) -> Self {
        Self { allocation, len, shared, uses: Uses::default(), element: PhantomData }
    }

    /// The device address of the first element, as an argument for kernels; zero if there are no bytes.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.allocation.address()
    }

    /// The memory beneath.
    #[must_use]
    pub const fn allocation(&self) -> &Allocation<D> {
        &self.allocation
    }

    /// Some of the elements, to be read.
    ///
    /// # Panics
    ///
    /// If the range ends behind the slice.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> View<'_, T, D> {
        View::new(self, bounds(&range, self.len))
    }

    /// Some of the elements, to be written.
    ///
    /// # Panics
    ///
    /// If the range ends behind the slice.
    #[must_use]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> ViewMut<'_, T, D> {
        let range = bounds(&range, self.len);
        ViewMut::new(self, range)
    }

    fn is_own(&self, stream: &CudaStream) -> bool {
        let own = &self.shared.cudarc;
        own.cu_stream() == stream.cu_stream() && own.context().cu_ctx() == stream.context().cu_ctx()
    }

    /// Tells the cache of a use in another stream; whether the cache knows that stream.
    fn record(&self, stream: &CudaStream) -> bool {
        let known = self.shared.known(stream);
        if let Some(known) = &known {
            self.allocation.record_stream(known);
        }
        known.is_some()
    }

    fn begin_read<'a>(&'a self, stream: &'a CudaStream) -> Result<SyncOnDrop<'a>, DriverError> {
        self.uses.wait_for_write(stream)?;
        if self.is_own(stream) {
            return Ok(SyncOnDrop::Record(None));
        }
        stream.join(&self.shared.cudarc)?;
        let event = self.uses.add_read(stream, self.record(stream))?;
        Ok(SyncOnDrop::Record(Some((event, stream))))
    }

    fn begin_write<'a>(&'a mut self, stream: &'a CudaStream) -> Result<SyncOnDrop<'a>, DriverError> {
        self.uses.wait_for_all(stream)?;
        if self.is_own(stream) {
            self.uses.clear();
            return Ok(SyncOnDrop::Record(None));
        }
        stream.join(&self.shared.cudarc)?;
        let is_recorded = self.record(stream);
        let event = self.uses.set_write(stream, is_recorded)?;
        Ok(SyncOnDrop::Record(Some((event, stream))))
    }
}

impl<T, D: Device> DeviceSlice<T> for Slice<T, D> {
    fn len(&self) -> usize {
        self.len
    }

    fn stream(&self) -> &Arc<CudaStream> {
        &self.shared.cudarc
    }
}

impl<T, D: Device> DevicePtr<T> for Slice<T, D> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        let guard = self.begin_read(stream);
        (self.address(), guard.unwrap_or_else(|failed| self.shared.settle(stream, failed)))
    }
}

impl<T, D: Device> DevicePtrMut<T> for Slice<T, D> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        let (address, shared) = (self.address(), Arc::clone(&self.shared));
        let guard = self.begin_write(stream);
        (address, guard.unwrap_or_else(|failed| shared.settle(stream, failed)))
    }
}

impl<T, D: Device> Drop for Slice<T, D> {
    fn drop(&mut self) {
        let own = &self.shared.cudarc;
        self.uses.for_unrecorded(|event| {
            if own.wait(event).is_err() {
                own.context().record_err(event.synchronize());
            }
        });
    }
}

impl<T, D: Device> fmt::Debug for Slice<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slice")
            .field("element", &std::any::type_name::<T>())
            .field("len", &self.len)
            .field("allocation", &self.allocation)
            .finish_non_exhaustive()
    }
}
