//! The functions that ONNX Runtime calls for memory, one set for each device.
//!
//! ONNX Runtime passes neither a device nor a stream: a provider with such functions works in the default stream.

use std::ffi::c_void;
use std::ptr;
use std::sync::LazyLock;

use cachette::Label;
use cachette::hal::{Guarded, StreamRef};
use cachette_process::{Error, guarded};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::per_process::PerProcess;
use crate::shared::{self, pointer};
use crate::{calls, error};

/// How many devices there are functions for.
const DEVICES: usize = 16;

/// The label of ONNX Runtime's memory.
static LABEL: LazyLock<Label> = LazyLock::new(|| Label::new("onnxruntime"));
/// The text of the last failure of each device: ONNX Runtime itself says only that there is no memory.
static LAST_ERRORS: PerProcess<Guarded<[Option<String>; DEVICES]>> = PerProcess::new();

/// `void *(*)(size_t size)`.
type Allocate = unsafe extern "C" fn(size: usize) -> *mut c_void;
/// `void (*)(void *)`.
type Free = unsafe extern "C" fn(pointer: *mut c_void);
/// `void (*)()`.
type EmptyCache = unsafe extern "C" fn();

/// An array of a generic function, instantiated for every device.
macro_rules! for_each_device {
    ($function:ident: $($number:literal)*) => {
        [$($function::<$number>),*]
    };
}

static ALLOCATE: [Allocate; DEVICES] = for_each_device!(allocate: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
static FREE: [Free; DEVICES] = for_each_device!(free: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
static EMPTY_CACHE: [EmptyCache; DEVICES] = for_each_device!(empty_cache: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);

/// The functions of the module.
#[pymodule(submodule)]
pub(crate) mod onnxruntime {
    #[pymodule_export]
    use super::{addresses, last_error, release_cache};
}

/// The addresses of the functions of a device: allocate, free, empty the cache.
#[pyfunction]
fn addresses(device: usize) -> PyResult<(usize, usize, usize)> {
    if device >= DEVICES {
        return Err(PyValueError::new_err(format!(
            "there is no device {device}; the numbers are 0 to {}",
            DEVICES - 1
        )));
    }
    Ok((ALLOCATE[device] as usize, FREE[device] as usize, EMPTY_CACHE[device] as usize))
}

/// The text of the last failure on a device; `None` if there was none.
#[pyfunction]
fn last_error(device: usize) -> Option<String> {
    LAST_ERRORS.get().lock().get(device)?.clone()
}

/// Releases the unused memory of a device; returns the number of bytes.
#[pyfunction]
#[pyo3(name = "empty_cache")]
fn release_cache(py: Python<'_>, device: usize) -> PyResult<u64> {
    let Some(allocator) = cachette_process::find(device) else { return Ok(0) };
    calls::detached(py, || allocator.empty_cache())?.map_err(error::of_allocator)
}

/// Allocates on device `N`; null on failure.
unsafe extern "C" fn allocate<const N: usize>(size: usize) -> *mut c_void {
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "there are few devices")]
    let device = N as i32;
    // SAFETY: 1. the default stream always exists.
    match unsafe { shared::allocate(size, device, StreamRef::DEFAULT, *LABEL) } {
        Ok(address) => pointer(address),
        Err(why) => {
            keep::<N>(&why);
            ptr::null_mut()
        }
    }
}

/// Frees memory of device `N`; null is ignored.
unsafe extern "C" fn free<const N: usize>(pointer: *mut c_void) {
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "there are few devices")]
    shared::free(pointer, N as i32);
}

/// Releases the unused memory of device `N`.
unsafe extern "C" fn empty_cache<const N: usize>() {
    let emptied = guarded(|| match cachette_process::find(N) {
        Some(allocator) => Ok::<_, Error>(allocator.empty_cache().map(drop)?),
        None => Ok(()),
    });
    if let Err(why) = emptied {
        keep::<N>(&why);
    }
}

#[cold]
fn keep<const N: usize>(why: &Error) {
    LAST_ERRORS.get().lock()[N] = Some(why.to_string());
}
