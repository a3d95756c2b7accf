//! The Python callers of the running thread.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::OnceLock;

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

/// Does `work` with the interpreter if this thread holds its lock, and never waits for that lock.
///
/// Whoever holds it may be waiting for this very thread. An exception that is under way meanwhile stays so.
pub(crate) fn if_held<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    if !is_held() {
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

/// `PyThreadState *(void)`.
type CurrentState = unsafe extern "C" fn() -> *mut ffi::PyThreadState;

/// Whether this thread holds the interpreter's lock.
///
/// `PyGILState_Check` would say yes to every thread once there is a second interpreter, so the states are compared here.
fn is_held() -> bool {
    let Some(current_state) = current_state() else {
        return false;
    };
    // SAFETY: it may be called at any time, and says whose turn it is; null for nobody's.
    let current = unsafe { current_state() };
    // SAFETY: it may be called by any thread; null for one that no interpreter knows.
    let own = unsafe { ffi::PyGILState_GetThisThreadState() };
    !own.is_null() && ptr::eq(own, current)
}

/// The function that says whose turn it is, by its name since Python 3.13 and before that.
fn current_state() -> Option<CurrentState> {
    static FOUND: OnceLock<Option<CurrentState>> = OnceLock::new();
    let find = |name: &CStr| -> Option<CurrentState> {
        // SAFETY: the name ends with a zero, and the interpreter's symbols are there as long as the process.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        // SAFETY: what has one of these names is a function of this type, and null is none.
        unsafe { std::mem::transmute::<*mut c_void, Option<CurrentState>>(found) }
    };
    *FOUND.get_or_init(|| {
        find(c"PyThreadState_GetUnchecked").or_else(|| find(c"_PyThreadState_UncheckedGet"))
    })
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
