//! The Python callers of the running thread.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{mem, ptr};

use cachette::history::Frame;
use pyo3::prelude::*;
use pyo3::{ffi, intern};

/// Callers further out are left out.
const DEEPEST: usize = 64;

/// A place in Python code: the code, and how far it has come.
pub(crate) struct Place {
    code: Py<PyAny>,
    instruction: i64,
    /// Asked for its line only if the place is new, since that search takes long.
    frame: Py<PyAny>,
}

impl Place {
    /// What tells places apart, for as long as the code lives.
    pub(crate) fn key(&self) -> (usize, i64) {
        (self.code.as_ptr().addr(), self.instruction)
    }

    /// The place in words, and the code that its key is good for.
    pub(crate) fn describe(self, py: Python<'_>) -> (Frame, Py<PyAny>) {
        let code = self.code.bind(py);
        let text = |value: PyResult<Bound<'_, PyAny>>| {
            let text = value.and_then(|value| value.extract::<String>());
            text.unwrap_or_default()
        };
        let line = self.frame.bind(py).getattr(intern!(py, "f_lineno"));
        let frame = Frame {
            // Without its class: PyTorch's tools look for the bare name.
            name: text(code.getattr(intern!(py, "co_name"))),
            file: text(code.getattr(intern!(py, "co_filename"))),
            line: line.and_then(|line| line.extract()).unwrap_or(0),
        };
        (frame, self.code)
    }
}

/// Does `work` with the interpreter if it knows this thread, and takes its lock for that.
///
/// PyTorch gives the lock up before it asks for memory, so most requests come without it. A history asks where it is
/// before it takes one of our locks; so the holder of the interpreter's lock cannot be waiting for one of ours. Threads
/// that never ran Python, such as those of a backward pass, have no callers there and wait for nothing. An exception
/// that is under way meanwhile stays so.
pub(crate) fn if_known<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    // SAFETY: it may be called by any thread; null for one that no interpreter knows.
    let own = unsafe { ffi::PyGILState_GetThisThreadState() };
    if own.is_null() {
        return None;
    }
    Python::try_attach(|py| {
        let _raised = Raised::set_aside(py);
        work(py)
    })
}

/// The callers of this thread, innermost first.
///
/// `sys._getframe` is for callers in Python. Asked from here while a frame is torn down, Python 3.12 and 3.13 answer
/// with a frame of the interpreter's own, which lies in the C stack and is not initialised. The function of the C
/// interface skips such frames. Code is asked for by its function too: `f_code` calls the audit hooks of the program.
pub(crate) fn callers(py: Python<'_>) -> PyResult<Vec<Place>> {
    // SAFETY: the lock is held, so that there is a current thread state.
    let thread = unsafe { ffi::PyThreadState_Get() };
    // SAFETY: the lock is held, and the state is of this thread.
    let frame = unsafe { ffi::PyThreadState_GetFrame(thread) };
    // SAFETY: a new reference, or null where no Python code runs.
    let mut next = unsafe { Bound::from_owned_ptr_or_opt(py, frame.cast()) };
    let mut places = Vec::with_capacity(DEEPEST);
    while let Some(frame) = next.filter(|_| places.len() < DEEPEST) {
        // SAFETY: the lock is held, and it is a frame.
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

/// Drops objects soon, in the main thread and outside of every lock of ours: their ends may run Python code.
pub(crate) fn drop_later(objects: Vec<Py<PyAny>>) {
    buried().extend(objects);
    // SAFETY: it may be called at any time.
    if unsafe { ffi::Py_IsInitialized() } != 0 {
        // SAFETY: it may be called by any thread, with the lock or without it; the function needs no argument. A full
        // queue refuses, and then the next call takes these too.
        unsafe { ffi::Py_AddPendingCall(Some(drop_buried), ptr::null_mut()) };
    }
}

extern "C" fn drop_buried(_: *mut c_void) -> c_int {
    let objects = mem::take(&mut *buried());
    // The lock is held; this lets PyO3 know, which would put them off otherwise.
    Python::try_attach(|_| drop(objects));
    0
}

/// What is to be dropped; no code of Python's runs while it is held.
fn buried() -> MutexGuard<'static, Vec<Py<PyAny>>> {
    static BURIED: Mutex<Vec<Py<PyAny>>> = Mutex::new(Vec::new());
    BURIED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An exception that is under way, put aside: memory is freed while one passes through its owner.
struct Raised {
    parts: [*mut ffi::PyObject; 3],
}

impl Raised {
    fn set_aside(_: Python<'_>) -> Self {
        let mut parts = [ptr::null_mut(); 3];
        let [kind, value, trace] = &mut parts;
        // SAFETY: the lock is held, and the three places are this function's own.
        unsafe { ffi::PyErr_Fetch(kind, value, trace) };
        Self { parts }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        let [kind, value, trace] = self.parts;
        // SAFETY: the lock is still held, and these came from `PyErr_Fetch`.
        unsafe { ffi::PyErr_Restore(kind, value, trace) };
    }
}
