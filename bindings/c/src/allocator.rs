//! Opening, closing, checking and emptying an allocator.

use std::ffi::c_char;
use std::sync::Arc;

use cachette::{Allocator, Backends, Config, Label};

use crate::failure::Failure;
use crate::guard::{call, promises};
use crate::handle::{destroy, into_handle};
use crate::status::Status;
use crate::stream::OwnStreams;

/// A caching allocator for one device. It is thread-safe.
#[derive(Debug)]
pub struct AllocatorHandle {
    pub(crate) inner: Allocator,
    /// All handles of a shared allocator have the same.
    pub(crate) streams: Arc<OwnStreams>,
    /// What snapshots call its memory.
    pub(crate) label: Label,
}

/// Opens a device and creates an allocator for it.
///
/// `device` is for example `"cuda:0"`, `"hip:1"` or `"host"`; the number defaults to 0. NULL selects the first device
/// of the first backend that has one, in the order cuda, hip, host. `"host"` uses host memory instead of a device, for
/// tests.
///
/// `config` is for example `"expandable_segments:False,max_split_size_mb:64"`; an empty text is the default, which has
/// elastic segments. NULL reads the environment: `CACHETTE_ALLOC_CONF`, or else PyTorch's variables.
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
        cachette_process::log(&inner);
        *out_allocator = into_handle(AllocatorHandle { inner, streams: Arc::default(), label: Label::NONE });
    })
}

/// Parses a configuration, or reads the environment if there is no text.
pub(crate) fn config_of(text: Option<&str>) -> Result<Config, Failure> {
    Ok(text.map_or_else(Config::from_env, str::parse)?)
}

/// Closes an allocator; NULL is ignored.
///
/// Free its memory and release its pools first. Memory that is still allocated is leaked. Remaining pools, captures and
/// graphs keep the allocator's state alive and stay usable.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_close(allocator: *mut AllocatorHandle) -> Status {
    // SAFETY: 1. is the caller's promise.
    unsafe { destroy(allocator) }
}

/// Releases every unused segment to the device, and writes the number of bytes.
///
/// It may wait for the device, unless the configuration has `never_block:True`. Pools that have users keep their
/// segments.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_empty_cache(allocator: *mut AllocatorHandle, out_bytes: *mut u64) -> Status {
    call!([out(out_bytes), handle(allocator)], *out_bytes = allocator.inner.empty_cache()?)
}

/// Checks every invariant of the allocator, for tests. Returns `CACHETTE_ERROR_INCONSISTENT` if one is violated;
/// `cachette_last_error` names it.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_check(allocator: *const AllocatorHandle) -> Status {
    call!([handle(allocator)], allocator.inner.check().map_err(|text| Failure::new(Status::Inconsistent, text))?)
}
