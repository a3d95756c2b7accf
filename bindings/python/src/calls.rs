//! Calls of the allocator without the GIL, and the program's functions that it calls meanwhile.

use std::cell::{Cell, RefCell};

use pyo3::call::PyCallArgs;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use crate::code_locations::Noted;
use crate::interpreter;

thread_local! {
    /// How many calls of [`detached`] this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// What a function of the program raised to end it. The innermost [`detached`] raises it.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs `work` without the GIL. Events of a history have the stack of this moment.
///
/// A `KeyboardInterrupt` or `SystemExit` in a function of the program is raised in place of the result.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let noted = Noted::here();
    let done = py.detach(|| {
        // It ends in here: with the GIL, destructors of the program may run and free memory.
        let _noted = noted;
        let _depth = Depth::enter();
        work()
    });
    RAISED.take().map_or(Ok(done), Err)
}

/// Calls a function of the program, unless the interpreter is ending.
///
/// Its exceptions go to `sys.unraisablehook`. Those that are to end the program, and are no `Exception`, end the call of
/// the allocator instead. If that is not a call of this package, they are raised in the main thread.
pub(crate) fn call_back(function: &Py<PyAny>, arguments: impl for<'py> PyCallArgs<'py>) {
    call(function, arguments, |py, raised| raised.write_unraisable(py, Some(function.bind(py))));
}

/// Calls a function of the program that may refuse: the text of its exception is the error.
pub(crate) fn ask(function: &Py<PyAny>, arguments: impl for<'py> PyCallArgs<'py>) -> Result<(), String> {
    let mut answer = Err("the interpreter is ending".to_owned());
    if call(function, arguments, |_, raised| answer = Err(raised.to_string())) {
        answer = Ok(());
    }
    answer
}

/// Calls a function of the program. Returns whether it raised nothing. `refused` gets an `Exception`.
fn call(
    function: &Py<PyAny>,
    arguments: impl for<'py> PyCallArgs<'py>,
    refused: impl FnOnce(Python<'_>, PyErr),
) -> bool {
    if RAISED.with_borrow(Option::is_some) {
        return false;
    }
    let called = Python::try_attach(|py| {
        let called = Noted::aside(|| function.call1(py, arguments));
        let Err(raised) = called else { return true };
        if raised.is_instance_of::<PyException>(py) {
            refused(py, raised);
        } else if DEPTH.get() > 0 {
            RAISED.set(Some(raised));
        } else if interpreter::is_main_thread(py).unwrap_or(false) {
            interpreter::raise_later(raised);
        } else {
            raised.write_unraisable(py, Some(function.bind(py)));
        }
        false
    });
    called.unwrap_or(false)
}

/// Counts a call of [`detached`] while it lives.
struct Depth(());

impl Depth {
    fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self(())
    }
}

impl Drop for Depth {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}
