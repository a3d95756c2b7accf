//! Memory with a type and a shape, for other libraries.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use cachette::hal::{StreamRef, Vendor};
use cachette_dlpack::abi::{DLDataType, DLManagedTensor, DLManagedTensorVersioned};
use cachette_dlpack::{Imported, Tensor, data_type, type_text};
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::error;
use crate::memory::{Consumer, Memory};

/// What a capsule is called until a consumer has taken the tensor out.
const VERSIONED: &CStr = c"dltensor_versioned";
const UNVERSIONED: &CStr = c"dltensor";

/// Memory with a type and a shape; other libraries take it by DLPack or by the CUDA array interface.
///
/// A view keeps the memory, also after `free()` of its allocation.
#[pyclass(module = "cachette_gpu", name = "View", frozen)]
pub(crate) struct PyView {
    memory: Arc<Memory>,
    name: String,
    data_type: DLDataType,
    shape: Vec<i64>,
}

impl PyView {
    pub(crate) fn new(memory: Arc<Memory>, name: &str, shape: Vec<i64>) -> PyResult<Self> {
        let data_type = data_type(name).ok_or_else(|| {
            PyValueError::new_err(format!(
                "there is no type {name:?}; pass a name of NumPy such as 'float32', or 'bfloat16'"
            ))
        })?;
        memory.tensor(data_type, &shape)?;
        Ok(Self { memory, name: name.to_owned(), data_type, shape })
    }

    /// All bytes of some memory.
    pub(crate) fn of_bytes(memory: Arc<Memory>) -> PyResult<Self> {
        let bytes = i64::try_from(memory.allocation.requested()).unwrap_or(i64::MAX);
        Self::new(memory, "uint8", vec![bytes])
    }
}

/// Refuses what `__dlpack__` is asked for and memory on the device `here` cannot do.
pub(crate) fn check(here: (i32, i32), dl_device: Option<(i32, i32)>, copy: Option<bool>) -> PyResult<()> {
    if copy == Some(true) {
        return Err(PyBufferError::new_err("Cachette exports memory without a copy; copy the result instead"));
    }
    match dl_device {
        Some(other) if other != here => Err(PyBufferError::new_err(format!(
            "the memory is on device {here:?} of DLPack, and not on {other:?}; copy it there first"
        ))),
        _ => Ok(()),
    }
}

#[pymethods]
impl PyView {
    /// The name of the type of its elements.
    #[getter]
    fn dtype(&self) -> &str {
        &self.name
    }

    /// Its lengths.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// The address of the first element.
    pub(crate) fn data_ptr(&self) -> u64 {
        self.memory.allocation.address()
    }

    /// The kind and the number of the device, in the numbers of DLPack.
    pub(crate) fn __dlpack_device__(&self) -> (i32, i32) {
        let device = self.memory.device();
        (device.device_type, device.device_id)
    }

    /// A capsule with the memory, for `from_dlpack` of another library.
    ///
    /// `stream` is the handle of the consumer's stream, which waits for the stream of the memory. The memory is freed
    /// behind the work that the consumer's stream has when the consumer deletes the tensor. So that stream must stay
    /// alive as long as the allocator and the memory.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    pub(crate) fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        check(self.__dlpack_device__(), dl_device, copy)?;
        self.memory.check_awake()?;
        let consumer = Consumer::read(self.memory.vendor(), stream)?;
        self.memory.pass_to(py, consumer)?;
        capsule(py, self.memory.tensor(self.data_type, &self.shape)?, max_version.is_some_and(|(major, _)| major >= 1))
    }

    /// The CUDA array interface, version 3; host memory has none.
    #[getter]
    pub(crate) fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.memory.check_awake()?;
        let allocation = &self.memory.allocation;
        let stream = match self.memory.vendor() {
            Vendor::Host => {
                return Err(PyAttributeError::new_err("host memory has no CUDA array interface; use DLPack"));
            }
            // The interface has no number for the default stream of ROCm, so the host waits.
            Vendor::Amd if allocation.stream() == StreamRef::DEFAULT => {
                py.detach(|| self.memory.synchronize()).map_err(error::of_device)?;
                None
            }
            _ if allocation.stream() == StreamRef::DEFAULT => Some(1),
            _ => Some(allocation.stream().raw()),
        };
        let text = type_text(self.data_type).ok_or_else(|| {
            PyAttributeError::new_err(format!("{} has no name in the CUDA array interface; use DLPack", self.name))
        })?;
        let dict = PyDict::new(py);
        dict.set_item("shape", self.shape(py)?)?;
        dict.set_item("typestr", text)?;
        dict.set_item("data", (allocation.address(), false))?;
        dict.set_item("strides", py.None())?;
        dict.set_item("stream", stream)?;
        dict.set_item("version", 3)?;
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        format!("<cachette_gpu.View of {} {:?} at {:#x}>", self.name, self.shape, self.data_ptr())
    }
}

/// A capsule that owns a tensor until a consumer renames it.
pub(crate) fn capsule<O: Send + 'static>(
    py: Python<'_>,
    tensor: Tensor<O>,
    versioned: bool,
) -> PyResult<Bound<'_, PyAny>> {
    let (pointer, name) = if versioned {
        (tensor.into_versioned().cast::<c_void>(), VERSIONED)
    } else {
        (tensor.into_unversioned().cast::<c_void>(), UNVERSIONED)
    };
    // SAFETY: the pointer is not null, the name lives as long as the process, and the destructor takes such a capsule.
    let made = unsafe { ffi::PyCapsule_New(pointer.as_ptr(), name.as_ptr(), Some(drop_capsule)) };
    // SAFETY: the interpreter is attached, and gives a new reference, or null with an exception set.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, made) };
    if made.is_err() {
        delete(pointer, versioned);
    }
    made
}

/// Deletes the tensor of a capsule that no consumer took.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    for (name, versioned) in [(VERSIONED, true), (UNVERSIONED, false)] {
        // SAFETY: the interpreter passes a live capsule, and the name ends with a zero.
        if unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) } == 0 {
            continue;
        }
        // SAFETY: it is valid under this name.
        let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) };
        if let Some(pointer) = NonNull::new(pointer) {
            delete(pointer, versioned);
        }
    }
}

/// Runs the deleter of a tensor that [`capsule`] made and no consumer took.
fn delete(pointer: NonNull<c_void>, versioned: bool) {
    // SAFETY: the tensor is whole, and its one owner gives it up here.
    let versioned_tensor = || unsafe { Imported::from_versioned(pointer.cast::<DLManagedTensorVersioned>()) };
    // SAFETY: as above.
    let unversioned_tensor = || unsafe { Imported::from_unversioned(pointer.cast::<DLManagedTensor>()) };
    drop(if versioned { versioned_tensor() } else { unversioned_tensor() });
}
