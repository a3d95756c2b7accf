//! Opening an allocator, closing it, and what concerns it as a whole.

use std::ffi::c_char;

use cachette::{Allocator, Backends, Config};

use crate::failure::Failure;
use crate::given::{destroy, give};
use crate::guard::{call, promises};
use crate::status::Status;
use crate::stream::OwnStreams;

/// A caching allocator for one device. Any thread may use it at any time.
#[derive(Debug)]
pub struct AllocatorHandle {
    pub(crate) inner: Allocator,
    pub(crate) streams: OwnStreams,
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
#[doc = promises!("2 and 3")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_open(
    device: *const c_char,
    config: *const c_char,
    out_allocator: *mut *mut AllocatorHandle,
) -> Status {
    call!([out(out_allocator), optional_text(device), optional_text(config)], {
        let config = config_of(config)?;
        let device = device.map_or_else(Backends::open_first, Backends::open)?;
        let inner = Allocator::with_config(device, &config);
        *out_allocator = give(AllocatorHandle { inner, streams: OwnStreams::default() });
    })
}

/// The configuration that a text says, or the environment where there is no text.
pub(crate) fn config_of(text: Option<&str>) -> Result<Config, Failure> {
    Ok(text.map_or_else(Config::from_env, str::parse)?)
}

/// Closes an allocator; NULL is nothing.
///
/// Free its memory and release its pools first. Memory that is still allocated then can never be freed. A pool, a
/// capture or a graph that is still there keeps the allocator alive, so that it stays usable itself.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_close(allocator: *mut AllocatorHandle) -> Status {
    // SAFETY: 1. is the caller's promise.
    unsafe { destroy(allocator) }
}

/// Gives every unused segment back to the device, and writes how many bytes that were.
///
/// It may wait for the device, unless the configuration says `never_block:True`. Pools that somebody uses are left
/// alone.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_empty_cache(allocator: *mut AllocatorHandle, out_bytes: *mut u64) -> Status {
    call!([out(out_bytes), handle(allocator)], *out_bytes = allocator.inner.empty_cache()?)
}

/// Walks every structure of the allocator and checks every invariant, for tests. `CACHETTE_ERROR_INCONSISTENT` if one
/// does not hold; `cachette_last_error` says which.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_check(allocator: *const AllocatorHandle) -> Status {
    call!([handle(allocator)], allocator.inner.check().map_err(|text| Failure::new(Status::Inconsistent, text))?)
}
