//! Opening an allocator, closing it, and what concerns it as a whole.

use std::ffi::c_char;

use cachette::{Allocator, Backends, Config};

use crate::failure::Failure;
use crate::given::{give, handle, out, take};
use crate::guard::guard;
use crate::status::Status;
use crate::stream::OwnStreams;
use crate::text;

/// A caching allocator for one device. Any thread may use it at any time.
#[derive(Debug)]
pub struct AllocatorHandle {
    pub(crate) inner: Allocator,
    pub(crate) streams: OwnStreams,
}

/// Writes how many bytes something comes to that an allocator does or knows.
///
/// # Safety
///
/// Promises 1 and 2 of the crate.
pub(crate) unsafe fn write_bytes(
    allocator: *const AllocatorHandle,
    out_bytes: *mut u64,
    count: impl FnOnce(&Allocator) -> Result<u64, cachette::Error>,
) -> Status {
    guard(|| {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_bytes, 0, "out_bytes") }?;
        // SAFETY: 1. is the caller's promise.
        let allocator = unsafe { handle(allocator, "allocator") }?;
        *out = count(&allocator.inner)?;
        Ok(())
    })
}

/// Opens a device and makes an allocator for it.
///
/// `device` is such as `"cuda:0"`, `"hip:1"` or `"host"`; without a number it is the first. NULL takes the first
/// device of the first backend that has one, in the order cuda, hip, host. `"host"` is host memory in the place of a
/// device: it needs no hardware and is meant for tests.
///
/// `config` is text such as `"expandable_segments:True,max_split_size_mb:64"`; an empty one is the default. NULL takes
/// that of the environment: `CACHETTE_ALLOC_CONF`, or else PyTorch's variables.
///
/// Close it with `cachette_close`.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_open(
    device: *const c_char,
    config: *const c_char,
    out_allocator: *mut *mut AllocatorHandle,
) -> Status {
    guard(|| {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_allocator, std::ptr::null_mut(), "out_allocator") }?;
        // SAFETY: 3. is the caller's promise.
        let device = unsafe { text::optional(device, "device") }?;
        // SAFETY: 3. is the caller's promise.
        let config = config_of(unsafe { text::optional(config, "config") }?)?;
        let device = match device {
            Some(target) => Backends::open(target)?,
            None => Backends::open_first()?,
        };
        *out = give(AllocatorHandle { inner: Allocator::with_config(device, &config), streams: OwnStreams::default() });
        Ok(())
    })
}

/// The configuration that a text says, or the environment where there is no text.
pub(crate) fn config_of(text: Option<&str>) -> Result<Config, Failure> {
    let config = match text {
        Some(text) => text.parse(),
        None => Config::from_env(),
    };
    Ok(config?)
}

/// Closes an allocator; NULL is nothing.
///
/// Free its memory and release its pools first. Memory that is still allocated then can never be freed. A pool, a
/// capture or a graph that is still there keeps the allocator alive, so that it stays usable itself.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_close(allocator: *mut AllocatorHandle) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        drop(unsafe { take(allocator) });
        Ok(())
    })
}

/// Gives every unused segment back to the device, and writes how many bytes that were.
///
/// It may wait for the device, unless the configuration says `never_block:True`. Pools that somebody uses are left
/// alone.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_empty_cache(allocator: *mut AllocatorHandle, out_bytes: *mut u64) -> Status {
    // SAFETY: 1. and 2. are the caller's promises.
    unsafe { write_bytes(allocator, out_bytes, Allocator::empty_cache) }
}

/// Walks every structure of the allocator and checks every invariant, for tests. `CACHETTE_ERROR_INCONSISTENT` if one
/// does not hold; `cachette_last_error` says which.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_check(allocator: *const AllocatorHandle) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let allocator = unsafe { handle(allocator, "allocator") }?;
        let checked = allocator.inner.check();
        checked.map_err(|text| Failure::new(Status::Inconsistent, text))
    })
}
