//! What cases stand on: a plug-in over host devices, and its functions called as PyTorch does.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use cachette::hal::{Ordinal, StreamRef};
use cachette::{Allocator, Config, Stream};
use cachette_hal_host::{HostBackend, HostConfig, HostDevice};
use cachette_torch::{cachette_torch_alloc, cachette_torch_free};

/// Calls a function of the plug-in.
///
/// Cases keep streams alive as long as they run, and free what no work uses. What they point to lives during the call, and
/// their callbacks ignore the user pointer.
macro_rules! call {
    ($call:expr) => {{
        // SAFETY: every case keeps to the lines above.
        unsafe { $call }
    }};
}
pub(crate) use call;

pub(crate) const MIB: u64 = 1 << 20;
/// Memory of each device.
pub(crate) const CAPACITY: u64 = 256 * MIB;

/// Starts the plug-in over two devices that keep accounts and no bytes.
pub(crate) fn start(config: &str) -> HostBackend {
    start_over(config, true)
}

/// Starts the plug-in over two devices; `phantom` ones keep accounts and no bytes. Segments are direct unless `config`
/// says otherwise.
pub(crate) fn start_over(config: &str, phantom: bool) -> HostBackend {
    let devices = HostConfig::default().devices(2).capacity(CAPACITY);
    let backend = HostBackend::new(devices.phantom(phantom)).expect("such devices can be made");
    let mut direct = Config::builder().expandable_segments(false).build().expect("direct segments are allowed");
    direct.update(config).expect("the configuration is sound");
    cachette_process::start_on(Arc::new(backend.clone()), &direct).expect("it is the first start");
    backend
}

/// A device of the backend, to look at.
pub(crate) fn device(backend: &HostBackend, ordinal: u32) -> HostDevice {
    backend.device(Ordinal(ordinal)).expect("it has two")
}

/// The allocator of a device.
pub(crate) fn allocator(device: u32) -> &'static Allocator {
    cachette_process::allocator(device).expect("the device can be opened")
}

/// A new stream of a device.
pub(crate) fn stream(device: u32) -> Stream {
    let made = allocator(device).create_stream();
    made.expect("a stream can be made")
}

/// A stream as C knows it.
pub(crate) fn handle(stream: StreamRef) -> *mut c_void {
    ptr::without_provenance_mut(stream.raw())
}

/// Allocates on a stream of a device.
pub(crate) fn allocate(bytes: u64, device: c_int, stream: StreamRef) -> *mut c_void {
    let bytes = usize::try_from(bytes).expect("sizes have 64 bits");
    // SAFETY: the stream lives as long as the case.
    unsafe { cachette_torch_alloc(bytes, device, handle(stream)) }
}

/// Frees on a device.
pub(crate) fn free(memory: *mut c_void, device: c_int) {
    // SAFETY: no work uses it.
    unsafe { cachette_torch_free(memory, 0, device, ptr::null_mut()) };
}

pub(crate) const DEFAULT: StreamRef = StreamRef::DEFAULT;
