//! The functions that CuPy calls for memory.
//!
//! CuPy passes a size and a device, and no stream. So [`malloc`] asks CuPy for the current stream of the thread, by a C
//! function that CuPy exports to its own modules. CuPy calls both functions with the interpreter attached.
//!
//! A failure is an exception of Python. CuPy's call site catches C++ exceptions and keeps a Python exception that is
//! set already. So [`malloc`] sets the exception of Python, and throws an exception of C++ on top of it.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::{LazyLock, OnceLock};

use cachette::hal::load::{Candidate, Library};
use cachette::hal::{Guarded, StreamRef};
use cachette::{Allocator, Label};
use cachette_process::Error;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::shared::{self, pointer};
use crate::{calls, error, plugin};

/// The label of CuPy's memory.
static LABEL: LazyLock<Label> = LazyLock::new(|| Label::new("cupy"));
static CONNECTION: OnceLock<Connection> = OnceLock::new();
/// The objects of CuPy's streams that have memory, by handle. CuPy destroys a stream with its last object, and a heap
/// needs its stream as long as the process lives.
static RETAINED: Guarded<BTreeMap<usize, Py<PyAny>>> = Guarded::new(BTreeMap::new());

/// The name of the capsule, which Cython makes of the types of its function.
const SIGNATURE: &CStr = c"intptr_t (void)";
/// `void std::__throw_runtime_error(const char *)`.
const THROW: &str = "_ZSt21__throw_runtime_errorPKc";
const CXX_RUNTIME: &str = "libstdc++.so.6";

/// CUDA's number of the default stream, besides 0.
const LEGACY: isize = 1;
/// CUDA's number of the default stream of the calling thread.
const PER_THREAD: isize = 2;

/// What the functions need of CuPy and of C++.
struct Connection {
    current_stream: CurrentStream,
    throw: Throw,
}

/// `intptr_t get_current_stream_ptr()`. It may set an exception of Python.
type CurrentStream = unsafe extern "C" fn() -> isize;
type Throw = unsafe extern "C-unwind" fn(text: *const c_char) -> !;

/// The functions of the module, with the names of CuPy.
#[pymodule(submodule)]
pub(crate) mod cupy {
    #[pymodule_export]
    use super::{PyCapturePool, allocate, connect, free_address};
}

/// Connects to CuPy by its capsule `get_current_stream_ptr`; the addresses of `malloc` and `free`.
#[pyfunction]
fn connect(capsule: &Bound<'_, PyAny>) -> PyResult<(usize, usize)> {
    // SAFETY: any object may be asked, and the name ends with a zero.
    if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), SIGNATURE.as_ptr()) } == 0 {
        let found = capsule.repr()?;
        return Err(error::error(format!("CuPy's get_current_stream_ptr has another type ({found}); use CuPy 14")));
    }
    // SAFETY: it is valid under this name.
    let function = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), SIGNATURE.as_ptr()) };
    let candidates = [Candidate::Loaded(CXX_RUNTIME.into()), Candidate::Name(CXX_RUNTIME.into())];
    // SAFETY: CuPy is linked to the C++ runtime, and any process may load it.
    let library = unsafe { Library::open_first(&candidates) }.map_err(|why| error::error(why.to_string()))?;
    // SAFETY: the name holds the arguments.
    let throw = unsafe { library.find::<Throw>(THROW) };
    let throw = throw.ok_or_else(|| error::error(format!("{CXX_RUNTIME} has no {THROW}; use GNU's C++ runtime")))?;
    // SAFETY: the name of the capsule is the type of the function, and the pointer is not null.
    let current_stream = unsafe { mem::transmute::<*mut c_void, CurrentStream>(function) };
    // The module of the function is never unloaded, so the first connection serves.
    let _ = CONNECTION.set(Connection { current_stream, throw });
    Ok((malloc as *const () as usize, free as *const () as usize))
}

/// Allocates for CuPy's current stream. It is for versions of CuPy that catch no exceptions of C++.
#[pyfunction]
#[pyo3(name = "malloc")]
fn allocate(py: Python<'_>, size: usize, device: c_int) -> PyResult<u64> {
    let stream = current_stream(py)?;
    // A hit needs no wait, and to detach would take longer than the hit.
    // SAFETY: 1. CuPy's current stream is live. That it stays so is the caller's promise, as the documentation says.
    if let Some(address) = unsafe { shared::allocate_last_freed(size, device, stream, *LABEL) } {
        return Ok(address);
    }
    retain_current(py, stream);
    // A wait for the device must let others run: a stream may wait for a function of Python.
    // SAFETY: 1. as above.
    calls::detached(py, || unsafe { shared::allocate(size, device, stream, *LABEL) })?
        .map_err(|why| exception(py, size, device, why))
}

/// Frees what [`allocate`] gave.
#[pyfunction]
#[pyo3(name = "free")]
fn free_address(address: u64, device: c_int) {
    shared::free(pointer(address), device);
}

/// `void *malloc(void *param, size_t size, int device)`, which throws on failure.
///
/// # Safety
///
/// 1. The interpreter is attached, and [`connect`] was called.
unsafe extern "C-unwind" fn malloc(_param: *mut c_void, size: usize, device: c_int) -> *mut c_void {
    // SAFETY: 1. is the caller's promise.
    let py = unsafe { Python::assume_attached() };
    match allocate(py, size, device) {
        Ok(address) => pointer(address),
        Err(raised) => {
            raised.restore(py);
            throw()
        }
    }
}

/// `void free(void *param, void *pointer, int device)`, which throws never.
///
/// # Safety
///
/// 1. Work in the stream of the allocation is all that uses the memory.
unsafe extern "C" fn free(_param: *mut c_void, pointer: *mut c_void, device: c_int) {
    shared::free(pointer, device);
}

/// Throws an exception of C++, which CuPy replaces by that of Python.
#[cold]
fn throw() -> *mut c_void {
    if let Some(connection) = CONNECTION.get() {
        // SAFETY: the text ends with a zero, and it is copied. No value of Rust is live in the functions it leaves.
        unsafe { (connection.throw)(c"Cachette has no memory".as_ptr()) }
    }
    ptr::null_mut()
}

/// The stream that CuPy's next work goes to.
fn current_stream(py: Python<'_>) -> PyResult<StreamRef> {
    let connection = CONNECTION.get().ok_or_else(|| error::error("call cachette_gpu.cupy.enable() first"))?;
    // SAFETY: the interpreter is attached, and the function takes nothing.
    let stream = unsafe { (connection.current_stream)() };
    match stream {
        // It is also what a function of Cython returns with an exception.
        -1 => match PyErr::take(py) {
            Some(raised) => Err(raised),
            None => Err(error::error("CuPy's current stream has no handle; make another stream the current one")),
        },
        LEGACY => Ok(StreamRef::DEFAULT),
        PER_THREAD => Err(error::error(
            "CuPy's current stream is the default stream of a thread, whose memory no other thread could use in order; \
             unset CUPY_CUDA_PER_THREAD_DEFAULT_STREAM, or use a cupy.cuda.Stream",
        )),
        handle => Ok(StreamRef::from_raw(handle.cast_unsigned())),
    }
}

/// Keeps CuPy's current stream alive if it has this handle; nothing happens in a program without CuPy.
pub(crate) fn retain_current(py: Python<'_>, stream: StreamRef) {
    if stream == StreamRef::DEFAULT || RETAINED.lock().contains_key(&stream.raw()) {
        return;
    }
    let find = || -> PyResult<Option<Py<PyAny>>> {
        let modules = py.import("sys")?.getattr("modules")?;
        if !modules.contains("cupy.cuda")? {
            return Ok(None);
        }
        let current = modules.get_item("cupy.cuda")?.call_method0("get_current_stream")?;
        let is_it = current.getattr("ptr")?.extract::<usize>()? == stream.raw();
        Ok(is_it.then(|| current.unbind()))
    };
    // Without the object, that the stream stays live is the caller's promise.
    if let Ok(Some(current)) = find() {
        RETAINED.lock().insert(stream.raw(), current);
    }
}

/// CuPy's own exception for want of memory, or the package's for the rest.
#[cold]
fn exception(py: Python<'_>, size: usize, device: c_int, why: Error) -> PyErr {
    if !matches!(&why, Error::Memory(why) if why.is_out_of_memory()) {
        return error::of_process(why);
    }
    let allocator = usize::try_from(device).ok().and_then(cachette_process::find);
    let reserved = allocator.map_or(0, Allocator::reserved_bytes);
    let limit = allocator.and_then(Allocator::memory_limit).unwrap_or(0);
    let cause = error::of_process(why);
    let create = || py.import("cupy.cuda.memory")?.getattr("OutOfMemoryError")?.call1((size, reserved, limit));
    match create() {
        Ok(made) => {
            let raised = PyErr::from_value(made);
            raised.set_cause(py, Some(cause));
            raised
        }
        // A CuPy without that class; the text is worth more.
        Err(_) => cause,
    }
}

/// A pool for one capture: requests for streams that take part in it are served by the pool.
#[pyclass(module = "cachette_gpu._native", name = "CapturePool", frozen)]
pub(crate) struct PyCapturePool {
    pool: cachette::Pool<cachette::hal::AnyDevice>,
}

#[pymethods]
impl PyCapturePool {
    /// Routes the requests of the capture that `stream` is in to a new pool.
    #[new]
    fn new(device: u32, stream: usize) -> PyResult<Self> {
        use cachette::hal::{CaptureStatus, Device};
        use cachette::pool::Filter;

        let allocator = plugin::allocator(device)?;
        let capture = allocator.device().capture();
        let capture = capture.map_err(|why| error::error(why.to_string()))?;
        // SAFETY: 1. the caller has just begun to capture the stream.
        let status = unsafe { capture.capture_status(StreamRef::from_raw(stream)) };
        let CaptureStatus::Active(id) = status.map_err(error::of_device)? else {
            return Err(error::error("the stream is not captured; call stream.begin_capture() first"));
        };
        let pool = allocator.create_capture_pool();
        pool.keep();
        allocator.begin_allocate_to_pool(pool.id(), Filter::Capture(id)).map_err(error::of_allocator)?;
        Ok(Self { pool })
    }

    /// Ends the route; the pool lives on for the graph.
    fn end(&self) -> PyResult<()> {
        self.pool.allocator().end_allocate_to_pool(self.pool.id()).map_err(error::of_allocator)
    }

    /// The statistics: `allocations`, `allocated_bytes`, `segments`, `reserved_bytes`.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyDict>> {
        crate::stats::of_pool(py, &self.pool.stats())
    }
}

impl Drop for PyCapturePool {
    fn drop(&mut self) {
        // CuPy launches its graphs past the allocator. In a forked child nothing runs.
        if !cachette_process::is_forked() {
            self.pool.mark_external_graph_use();
        }
    }
}
