//! The Python callers of the running thread.

use std::ptr;

use cachette::history::Frame;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
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
        // From Python 3.11 on the name has its class too.
        let name = code
            .getattr(intern!(py, "co_qualname"))
            .or_else(|_| code.getattr(intern!(py, "co_name")));
        let line = self.frame.bind(py).getattr(intern!(py, "f_lineno"));
        let frame = Frame {
            name: text(name),
            file: text(code.getattr(intern!(py, "co_filename"))),
            line: line.and_then(|line| line.extract()).unwrap_or(0),
        };
        (frame, self.code)
    }
}

/// Does `work` with the interpreter if it knows this thread, and takes its lock for that.
///
/// PyTorch gives the lock up before it asks for memory, so most requests come without it. A history asks where it is
/// before it takes a lock of its own; so whoever holds the interpreter's cannot be waiting for one of ours. Threads that
/// never ran Python, such as those of a backward pass, have no callers there and wait for nothing. An exception that is
/// under way meanwhile stays so.
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
pub(crate) fn callers(py: Python<'_>) -> PyResult<Vec<Place>> {
    static GET_FRAME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let get_frame = GET_FRAME.import(py, "sys", "_getframe")?;
    let mut places = Vec::with_capacity(DEEPEST);
    let mut next = get_frame.call0()?;
    while !next.is_none() && places.len() < DEEPEST {
        let code = next.getattr(intern!(py, "f_code"))?;
        let instruction = next.getattr(intern!(py, "f_lasti"))?;
        let back = next.getattr(intern!(py, "f_back"))?;
        places.push(Place {
            code: code.unbind(),
            instruction: instruction.extract()?,
            frame: next.unbind(),
        });
        next = back;
    }
    Ok(places)
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
