//! The Python stack of the current thread.

use std::ffi::{c_int, c_void};
use std::{mem, ptr};

use cachette::hal::Guarded;
use cachette::history::Frame;
use pyo3::prelude::*;
use pyo3::types::PyString;
use pyo3::{ffi, intern};

use crate::per_process::PerProcess;

/// The most frames of a stack; outer ones are dropped.
const DEEPEST: usize = 64;

/// The objects to drop. No Python code runs while the lock is held.
static BURIED: PerProcess<Guarded<Vec<Py<PyAny>>>> = PerProcess::new();
/// The exceptions to raise. The GIL is held by all that use it.
static RAISINGS: Guarded<Vec<PyErr>> = Guarded::new(Vec::new());

/// A location in Python code: the code object and the instruction.
pub(crate) struct Place {
    code: Py<PyAny>,
    instruction: i64,
    /// Its line is looked up only for a new location, since that search is slow.
    frame: Py<PyAny>,
}

impl Place {
    /// The key of the location, valid while the code object lives.
    pub(crate) fn key(&self) -> (usize, i64) {
        (self.code.as_ptr().addr(), self.instruction)
    }

    /// Returns the location as text, and the code object that keeps its key valid.
    pub(crate) fn describe(self, py: Python<'_>) -> (Frame, Py<PyAny>) {
        let code = self.code.bind(py);
        // Names of files may have bytes that are no text, which Python keeps as surrogates.
        let text = |value: PyResult<Bound<'_, PyAny>>| {
            let text = value.and_then(|value| Ok(value.cast_into::<PyString>()?.to_string_lossy().into_owned()));
            text.unwrap_or_default()
        };
        let line = self.frame.bind(py).getattr(intern!(py, "f_lineno"));
        let frame = Frame {
            // Without its class, since PyTorch's tools expect the bare name.
            name: text(code.getattr(intern!(py, "co_name"))),
            file: text(code.getattr(intern!(py, "co_filename"))),
            line: line.and_then(|line| line.extract()).unwrap_or(0),
        };
        (frame, self.code)
    }
}

/// Calls `work` with the GIL held, if the thread has run Python before.
///
/// PyTorch releases the GIL before it requests memory, so most requests come without it. A history captures the stack
/// before the allocator takes any lock. So the holder of the GIL cannot be waiting for one of those locks. Threads that
/// never ran Python, such as those of a backward pass, have no Python frames and do not wait. A pending exception is
/// preserved.
pub(crate) fn if_known<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    // SAFETY: any thread may call it; it returns null for a thread without an interpreter.
    let own = unsafe { ffi::PyGILState_GetThisThreadState() };
    if own.is_null() {
        return None;
    }
    Python::try_attach(|py| {
        let _raised = Raised::set_aside(py);
        work(py)
    })
}

/// Returns the locations of this thread's frames, innermost first.
///
/// `sys._getframe` is for callers in Python. While a frame is destroyed, it returns an internal frame in Python 3.12
/// and 3.13. That frame lies on the C stack and is not initialised. The C function skips such frames. Code objects also
/// come from a C function, since `f_code` calls the audit hooks of the program.
pub(crate) fn callers(py: Python<'_>) -> PyResult<Vec<Place>> {
    // SAFETY: the GIL is held, so there is a current thread state.
    let thread = unsafe { ffi::PyThreadState_Get() };
    // SAFETY: the GIL is held, and the state belongs to this thread.
    let frame = unsafe { ffi::PyThreadState_GetFrame(thread) };
    // SAFETY: a new reference, or null if no Python code runs.
    let mut next = unsafe { Bound::from_owned_ptr_or_opt(py, frame.cast()) };
    let mut places = Vec::with_capacity(DEEPEST);
    while let Some(frame) = next.filter(|_| places.len() < DEEPEST) {
        // SAFETY: the GIL is held, and this is a frame.
        let code = unsafe { ffi::PyFrame_GetCode(frame.as_ptr().cast()) };
        // SAFETY: a new reference; every frame has code.
        let code = unsafe { Bound::from_owned_ptr(py, code.cast()) };
        let instruction = frame.getattr(intern!(py, "f_lasti"))?;
        let back = frame.getattr(intern!(py, "f_back"))?;
        places.push(Place { code: code.unbind(), instruction: instruction.extract()?, frame: frame.unbind() });
        next = (!back.is_none()).then_some(back);
    }
    Ok(places)
}

/// Drops objects later, on the main thread and outside all locks, since their destructors may run Python code.
pub(crate) fn drop_later(objects: Vec<Py<PyAny>>) {
    BURIED.get().lock().extend(objects);
    // SAFETY: it may be called at any time.
    if unsafe { ffi::Py_IsInitialized() } != 0 {
        // SAFETY: any thread may call it, with or without the GIL; the function needs no argument. If the queue is full
        // it fails, and the next call also drops these objects.
        unsafe { ffi::Py_AddPendingCall(Some(drop_buried), ptr::null_mut()) };
    }
}

extern "C" fn drop_buried(_: *mut c_void) -> c_int {
    let objects = mem::take(&mut *BURIED.get().lock());
    // The GIL is held. This tells PyO3 so, which would otherwise defer the drop.
    Python::try_attach(|_| drop(objects));
    0
}

/// Whether this thread is the one that Python delivers signals to.
pub(crate) fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    main.eq(threading.call_method0("get_ident")?)
}

/// Raises an exception in the main thread, before it runs its next function or loop.
pub(crate) fn raise_later(raised: PyErr) {
    RAISINGS.lock().push(raised);
    // SAFETY: any thread may call it; the function needs no argument. If the queue is full it fails, and the next call
    // also raises this exception.
    unsafe { ffi::Py_AddPendingCall(Some(raise_now), ptr::null_mut()) };
}

extern "C" fn raise_now(_: *mut c_void) -> c_int {
    let Some(raised) = RAISINGS.lock().pop() else { return 0 };
    // The GIL is held.
    Python::try_attach(|py| raised.restore(py)).map_or(0, |()| -1)
}

/// A pending exception, saved: memory may be freed while an exception unwinds through its owner.
struct Raised {
    parts: [*mut ffi::PyObject; 3],
}

impl Raised {
    fn set_aside(_: Python<'_>) -> Self {
        let mut parts = [ptr::null_mut(); 3];
        let [kind, value, trace] = &mut parts;
        // SAFETY: the GIL is held, and the three variables are local.
        unsafe { ffi::PyErr_Fetch(kind, value, trace) };
        Self { parts }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        let [kind, value, trace] = self.parts;
        // SAFETY: the GIL is still held, and these came from `PyErr_Fetch`.
        unsafe { ffi::PyErr_Restore(kind, value, trace) };
    }
}
