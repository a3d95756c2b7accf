//! The component of a program that memory of libraries belongs to.

use cachette::{Label, LabelScope};
use pyo3::prelude::*;

/// Names memory that libraries request on this thread inside a `with` block.
#[pyclass(name = "component", module = "cachette_gpu", unsendable)]
#[derive(Debug)]
pub(crate) struct PyComponent {
    label: Label,
    /// One for each `with` block that is running.
    entered: Vec<LabelScope>,
}

#[pymethods]
impl PyComponent {
    #[new]
    fn new(name: &str) -> Self {
        Self { label: Label::new(name), entered: Vec::new() }
    }

    fn __enter__(mut this: PyRefMut<'_, Self>) -> PyRefMut<'_, Self> {
        let entered = this.label.enter();
        this.entered.push(entered);
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&mut self, _exception: &Bound<'_, PyAny>) {
        self.entered.pop();
    }
}
