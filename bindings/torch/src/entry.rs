//! The allocation and free functions of PyTorch's pluggable allocator.

use std::ffi::{c_int, c_void};
use std::ptr;

use cachette::hal::StreamRef;
use cachette::{Allocator, Label, PointerProblem};
use cachette_process::{self as process, is_forked};

use crate::counters::{FAILED_FREES, UNKNOWN_FREES};
use crate::error::Error;
use crate::ipc;
use crate::{processes, throw};

/// Allocates `size` bytes for work in `stream`. Returns null for zero bytes.
///
/// On failure it throws `c10::OutOfMemoryError` or `c10::Error`, or `std::runtime_error` if PyTorch's classes are not
/// found. In a process without C++ it prints the error to stderr and returns null.
///
/// # Safety
///
/// 1. `stream` is a live stream of `device`, or null.
/// 2. It stays so as long as the process allocates on the device.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_torch_alloc(size: usize, device: c_int, stream: *mut c_void) -> *mut c_void {
    let stream = StreamRef::from_raw(stream as usize);
    // SAFETY: 1. and 2. are the caller's promises.
    match process::guarded(|| unsafe { allocate(size, device, stream) }) {
        Ok(address) => pointer(address),
        Err(error) => raise(error),
    }
}

/// Throws the error of a request, and returns null in a process without C++.
#[cold]
#[inline(never)]
#[expect(clippy::needless_pass_by_value, reason = "the caller then drops nothing")]
fn raise(error: Box<Error>) -> *mut c_void {
    throw::raise(&error);
    ptr::null_mut()
}

/// Frees memory of [`cachette_torch_alloc`]; null is ignored.
///
/// It never throws. Unknown addresses are counted; see [`counters`](crate::counters).
///
/// # Safety
///
/// 1. Work in the stream of the allocation, and in streams recorded for it, is all that uses the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_torch_free(ptr: *mut c_void, size: usize, device: c_int, stream: *mut c_void) {
    let _ = (size, stream);
    if ptr.is_null() || is_forked() {
        return;
    }
    if let Err(error) = process::guarded(|| free(ptr as u64, device)) {
        tell_of_free(&error);
    }
}

/// # Safety
///
/// As for [`cachette_torch_alloc`].
#[inline]
unsafe fn allocate(size: usize, device: c_int, stream: StreamRef) -> Result<u64, Box<Error>> {
    let allocator = match usize::try_from(device).ok().and_then(process::existing) {
        Some(allocator) => allocator,
        None if size == 0 => return Ok(0),
        None => open(device)?,
    };
    // SAFETY: 1. and 2. are the caller's promises; allocators of the plug-in live as long as the process.
    unsafe { allocator.allocate_raw_or(size as u64, stream, Label::TORCH, |error| of_request(allocator, error)) }
}

/// The allocator of a device, for its first request.
#[cold]
#[inline(never)]
fn open(device: c_int) -> Result<&'static Allocator, Box<Error>> {
    Ok(allocator_of(device)?)
}

/// The error of a request.
#[cold]
#[expect(clippy::unnecessary_box_returns, reason = "the fast path returns two words")]
fn of_request(allocator: &Allocator, error: cachette::Error) -> Box<Error> {
    if is_forked() {
        return Error::from(process::Error::Forked).into();
    }
    of_memory(allocator, error).into()
}

#[inline]
fn free(address: u64, device: c_int) -> Result<(), Box<Error>> {
    let allocator = usize::try_from(device).ok().and_then(process::find);
    let allocator = allocator.ok_or(Error::Unopened { device: device.into() })?;
    let freed = allocator.free_raw(address);
    ipc::withdraw_freed(address, &freed);
    freed.map_err(|error| of_memory(allocator, error).into())
}

/// The allocator of a device, by PyTorch's number.
#[inline]
pub(crate) fn allocator_of(device: c_int) -> Result<&'static Allocator, Error> {
    Ok(process::allocator(number_of(device)?)?)
}

/// The number of a device, from PyTorch's.
#[inline]
pub(crate) fn number_of(device: c_int) -> Result<u32, Error> {
    u32::try_from(device).map_err(|_| process::Error::NoSuchDevice { device: device.into() }.into())
}

/// An allocator's error, with its vendor.
#[cold]
pub(crate) fn of_memory(allocator: &Allocator, error: cachette::Error) -> Error {
    let info = allocator.device_info();
    let processes = match error {
        cachette::Error::OutOfMemory(_) => processes::of(info.uuid),
        _ => Vec::new(),
    };
    Error::Memory { vendor: info.vendor, error, processes }
}

/// The result of an allocator, with its vendor in an error.
pub(crate) fn with_vendor<T>(allocator: &Allocator, result: Result<T, cachette::Error>) -> Result<T, Error> {
    result.map_err(|error| of_memory(allocator, error))
}

/// Counts and logs a failed free, since a destructor cannot return an error.
#[cold]
pub(crate) fn tell_of_free(error: &Error) {
    match error {
        _ if error.is_shutting_down() => {}
        Error::Memory { error: cachette::Error::Device(_) | cachette::Error::Source(_), .. } => {
            FAILED_FREES.tell(format_args!("memory could not be freed yet: {error}"));
        }
        _ => UNKNOWN_FREES
            .tell(format_args!("memory was not freed: {error}; this is said once, and counted from now on")),
    }
}

/// Runs `work` and returns a panic as an error, since the caller is C++.
#[inline]
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    process::guarded(work)
}

/// Runs `work`, and throws its error as a C++ exception; without a C++ runtime it returns the default value.
pub(crate) fn or_raise<T: Default>(work: impl FnOnce() -> Result<T, Error>) -> T {
    guarded(work).unwrap_or_else(|error| {
        throw::raise(&error);
        T::default()
    })
}

/// A device address as a C pointer; the host never reads it.
#[expect(clippy::cast_possible_truncation, reason = "the crate `cachette_hal` builds only where both have 64 bits")]
pub(crate) const fn pointer(address: u64) -> *mut c_void {
    ptr::without_provenance_mut(address as usize)
}

/// Calls `ask` for each open device until one succeeds. No two devices share an address.
pub(crate) fn ask_owner<T>(ask: impl Fn(&'static Allocator) -> Result<T, cachette::Error>) -> Result<T, Error> {
    let mut unknown = Error::Unopened { device: 0 };
    for (_, allocator) in process::opened() {
        let error = match ask(allocator) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let is_foreign = matches!(error, cachette::Error::InvalidPointer { why: PointerProblem::Foreign, .. });
        unknown = of_memory(allocator, error);
        if !is_foreign {
            break;
        }
    }
    Err(unknown)
}
