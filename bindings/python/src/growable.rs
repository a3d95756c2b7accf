//! Growable allocations: addresses now, and memory where and when the program wants it.

use std::sync::Arc;

use cachette::hal::Guarded;
use cachette::{Allocator, Growable, Stream};
use cachette_dlpack::abi::DLDataType;
use cachette_dlpack::{Tensor, data_type, device_of};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::memory::Consumer;
use crate::stream::Named;
use crate::{calls, error, view};

/// Addresses whose memory the program adds and removes, in order of a stream.
///
/// It is freed by `free()`, at the end of a `with` block, or with the object. Consumers of DLPack keep it too.
#[pyclass(module = "cachette_gpu", name = "Growable", frozen)]
pub(crate) struct PyGrowable {
    /// `None` after the free.
    inner: Guarded<Option<Arc<Growable>>>,
}

impl PyGrowable {
    /// Reserves addresses by `reserve`, for work in a stream of the allocator.
    pub(crate) fn reserve(
        py: Python<'_>,
        allocator: &Allocator,
        stream: Option<Named<'_>>,
        reserve: impl FnOnce(&Stream) -> Result<Growable, cachette::Error> + Send,
    ) -> PyResult<Self> {
        let stream = Named::open(stream, allocator)?;
        let made = calls::detached(py, || reserve(&stream))?.map_err(error::of_allocator)?;
        Ok(Self { inner: Guarded::new(Some(Arc::new(made))) })
    }

    fn growable(&self) -> PyResult<Arc<Growable>> {
        self.inner.lock().clone().ok_or_else(|| error::error("this memory was already freed"))
    }

    /// Bytes, as their type: the type that every library can view as another one.
    fn data_type() -> DLDataType {
        data_type("uint8").expect("DLPack has bytes")
    }
}

#[pymethods]
impl PyGrowable {
    /// The address of the first byte.
    #[getter]
    fn address(&self) -> PyResult<u64> {
        Ok(self.growable()?.address())
    }

    /// The bytes of the addresses: those requested, in whole pages.
    #[getter]
    fn bytes(&self) -> PyResult<u64> {
        Ok(self.growable()?.bytes())
    }

    /// The bytes of a page: memory is added and removed in whole pages.
    #[getter]
    fn page(&self) -> PyResult<u64> {
        Ok(self.growable()?.page())
    }

    /// The committed bytes.
    #[getter]
    fn committed(&self) -> PyResult<u64> {
        Ok(self.growable()?.committed())
    }

    /// Puts memory behind the bytes from `start` to `end`, which have none. Their contents are undefined.
    ///
    /// Fails like a request of the same bytes if memory is short, and then changes nothing.
    fn commit(&self, py: Python<'_>, start: u64, end: u64) -> PyResult<()> {
        let growable = self.growable()?;
        calls::detached(py, || growable.commit(start..end))?.map_err(error::of_allocator)
    }

    /// Takes the memory behind committed bytes away, after the work that the stream has queued so far.
    ///
    /// A page leaves once none of its bytes is committed.
    fn decommit(&self, py: Python<'_>, start: u64, end: u64) -> PyResult<()> {
        let growable = self.growable()?;
        calls::detached(py, || growable.decommit(start..end))?.map_err(error::of_allocator)
    }

    /// Records that `stream` also uses the memory that is committed now. Its next use waits for that work.
    fn record_stream(&self, stream: Named<'_>) -> PyResult<()> {
        let growable = self.growable()?;
        growable.record_stream(&Named::open(Some(stream), growable.allocator())?);
        Ok(())
    }

    /// The kind and the number of the device, in the numbers of DLPack.
    fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
        let device = device_of(self.growable()?.allocator().device_info());
        Ok((device.device_type, device.device_id))
    }

    /// A capsule with all addresses as `uint8`. Only committed bytes may be used.
    ///
    /// The stream of the consumer waits for the stream of the memory. Before bytes are decommitted, record the streams
    /// that use them.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        view::check(self.__dlpack_device__()?, dl_device, copy)?;
        let growable = self.growable()?;
        let allocator = growable.allocator();
        let consumer = Consumer::read(allocator.device_info().vendor, stream)?;
        consumer.order(py, allocator, || growable.stream().synchronize(), |stream| stream.wait(growable.stream()))?;
        let (address, bytes, device) = (growable.address(), growable.bytes(), device_of(allocator.device_info()));
        let length = i64::try_from(bytes).map_err(|why| PyValueError::new_err(why.to_string()))?;
        let tensor = Tensor::new(Arc::clone(&growable), address, bytes, device, Self::data_type(), &[length]);
        let tensor = tensor.map_err(|why| PyValueError::new_err(why.to_string()))?;
        view::capsule(py, tensor, max_version.is_some_and(|(major, _)| major >= 1))
    }

    /// Gives the memory up; a second call does nothing. It ends with its last consumer.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        let taken = self.inner.lock().take();
        calls::detached(py, || drop(taken))
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.free(py)
    }

    fn __repr__(&self) -> String {
        let text = |it: Arc<Growable>| {
            let (committed, bytes, address) = (it.committed(), it.bytes(), it.address());
            format!("<cachette_gpu.Growable of {committed} of {bytes} bytes at {address:#x}>")
        };
        self.growable().map_or_else(|_| "<cachette_gpu.Growable, freed>".to_owned(), text)
    }
}
