//! Memory that several objects of Python share.

use std::sync::Arc;

use cachette::hal::{Device, DeviceInfo, StreamRef, Vendor};
use cachette::{Allocation, Allocator, Stream, hal};
use cachette_dlpack::abi::{DLDataType, DLDevice};
use cachette_dlpack::{Tensor, device_of, hand_over};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;

use crate::error;

/// An allocation and its allocator. The memory goes back with the last owner: an object of Python or a consumer.
pub(crate) struct Memory {
    pub(crate) allocator: Allocator,
    pub(crate) allocation: Allocation,
}

impl Drop for Memory {
    fn drop(&mut self) {
        // A tensor of PyTorch over the memory may have been shared with other processes.
        cachette_torch::adapter::withdraw(self.allocation.address());
    }
}

impl Memory {
    fn info(&self) -> &DeviceInfo {
        self.allocator.device_info()
    }

    pub(crate) fn vendor(&self) -> Vendor {
        self.info().vendor
    }

    pub(crate) fn device(&self) -> DLDevice {
        device_of(self.info())
    }

    /// The memory as a tensor of DLPack.
    pub(crate) fn tensor(self: &Arc<Self>, data_type: DLDataType, shape: &[i64]) -> PyResult<Tensor<Arc<Self>>> {
        let allocation = &self.allocation;
        let (address, bytes) = (allocation.address(), allocation.requested());
        Tensor::new(Arc::clone(self), address, bytes, self.device(), data_type, shape)
            .map_err(|why| PyValueError::new_err(why.to_string()))
    }

    /// Fails if there is no memory at the address until the pool wakes.
    pub(crate) fn check_awake(&self) -> PyResult<()> {
        if self.allocation.is_asleep() {
            return Err(error::of_pool("the pool of this memory sleeps; wake it first, by wake() or make_resident()"));
        }
        Ok(())
    }

    /// Lets a consumer use the memory in `stream`, as `__dlpack__` was asked.
    pub(crate) fn pass_to(&self, py: Python<'_>, consumer: Consumer) -> PyResult<()> {
        let hand_over = |stream: &Stream| Ok(hand_over(&self.allocator, &self.allocation, stream)?);
        consumer.order(py, &self.allocator, || self.synchronize(), hand_over)
    }

    /// Waits until everything queued in the stream of the memory has finished.
    pub(crate) fn synchronize(&self) -> hal::Result<()> {
        // SAFETY: 1. the allocation keeps its stream alive.
        unsafe { self.allocator.device().synchronize(self.allocation.stream()) }
    }
}

/// Who is to use a tensor: what the argument `stream` of `__dlpack__` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consumer {
    /// A stream of the device.
    Stream(StreamRef),
    /// The host, at once.
    Host,
    /// The caller orders the work.
    Unordered,
}

impl Consumer {
    /// Orders the uses of the consumer behind the work of the memory, on the host by `settle` or in a stream.
    pub(crate) fn order(
        self,
        py: Python<'_>,
        allocator: &Allocator,
        settle: impl FnOnce() -> hal::Result<()> + Send,
        hand_over: impl FnOnce(&Stream) -> Result<(), cachette::Error>,
    ) -> PyResult<()> {
        match self {
            Self::Unordered => Ok(()),
            Self::Host => py.detach(settle).map_err(error::of_device),
            Self::Stream(stream) => {
                crate::cupy::retain_current(py, stream);
                // SAFETY: a handle is its caller's to answer for, as the documentation says: a live stream of this
                // device until the allocator and the memory are gone.
                let stream = unsafe { allocator.adopt_stream(stream) }.map_err(error::of_allocator)?;
                hand_over(&stream).map_err(error::of_allocator)
            }
        }
    }

    /// Reads the argument by the rules of the array API standard, which differ by vendor.
    pub(crate) fn read(vendor: Vendor, stream: Option<i64>) -> PyResult<Self> {
        let refuse = |text: &str| Err(PyBufferError::new_err(format!("stream={}: {text}", stream.unwrap_or(0))));
        match (vendor, stream) {
            (_, Some(-1)) => Ok(Self::Unordered),
            (Vendor::Host, None) => Ok(Self::Host),
            (Vendor::Host, Some(_)) => refuse("memory of the host has no streams; pass stream=None"),
            (Vendor::Nvidia, Some(0)) => refuse("0 could be two streams; pass 1 for the default stream"),
            (Vendor::Nvidia, Some(2)) => {
                refuse("the stream of a thread cannot be waited for by another thread; pass a stream's handle")
            }
            (Vendor::Nvidia, Some(1)) | (_, None | Some(0)) => Ok(Self::Stream(StreamRef::DEFAULT)),
            (Vendor::Amd, Some(1 | 2)) => refuse("ROCm has no such stream; pass 0 for the default stream"),
            (_, Some(handle)) => match usize::try_from(handle) {
                Ok(handle) => Ok(Self::Stream(StreamRef::from_raw(handle))),
                Err(_) => refuse("no stream has a negative handle; pass -1 for no order at all"),
            },
        }
    }
}
