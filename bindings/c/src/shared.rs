//! The allocators that the whole process shares.

use std::ffi::c_char;
use std::sync::{Arc, OnceLock};

use cachette::Label;
use cachette_process as process;

use crate::allocator::{AllocatorHandle, config_of};
use crate::guard::{call, promises};
use crate::handle::into_handle;
use crate::status::Status;
use crate::stream::OwnStreams;

/// The streams of each device's allocator, which lives longer than its handles.
static STREAMS: [OnceLock<Arc<OwnStreams>>; process::MOST_DEVICES] = [const { OnceLock::new() }; process::MOST_DEVICES];

/// Selects the backend (`"cuda"`, `"hip"` or `"host"`) and the configuration of the shared allocators, once in a
/// process.
///
/// The driver is not used yet. Without this call, the first `cachette_open_shared` selects the driver that the process
/// has loaded and the configuration of the environment. `config` is as for `cachette_open`.
#[doc = promises!("3")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_start(backend: *const c_char, config: *const c_char) -> Status {
    call!([text(backend), optional_text(config)], process::start(backend, &config_of(config)?)?)
}

/// Opens the shared allocator of a device. PyTorch, CuPy and other libraries that use Cachette in this process allocate
/// from the same one.
///
/// Snapshots show the memory of this handle with the label `c`. Close the handle with `cachette_close`; the allocator
/// and its streams stay.
#[doc = promises!("2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_open_shared(device: u32, out_allocator: *mut *mut AllocatorHandle) -> Status {
    call!([out(out_allocator)], {
        let inner = process::allocator(device)?.clone();
        // `process::allocator` has checked the number.
        let streams = Arc::clone(STREAMS[device as usize].get_or_init(Arc::default));
        *out_allocator = into_handle(AllocatorHandle { inner, streams, label: Label::new("c") });
    })
}
