//! Sequences of bounded length.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PySequence, PyString};

/// A sequence of Python with at most `MOST` values.
///
/// A sequence can state any length, such as `range(10**12)`. So it is read one by one, and no memory is reserved.
#[derive(Debug, Default)]
pub(crate) struct AtMost<const MOST: usize, T>(pub(crate) Vec<T>);

impl<'py, const MOST: usize, T> FromPyObject<'_, 'py> for AtMost<MOST, T>
where
    T: for<'a> FromPyObject<'a, 'py>,
{
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyString>() {
            return Err(PyTypeError::new_err("expected a list, not a single text"));
        }
        let mut values = Vec::new();
        for value in object.cast::<PySequence>()?.try_iter()? {
            if values.len() == MOST {
                return Err(PyValueError::new_err(format!("the sequence has more than {MOST} values; pass fewer")));
            }
            values.push(value?.extract().map_err(Into::into)?);
        }
        Ok(Self(values))
    }
}
