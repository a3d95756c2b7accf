//! The hooks of PyTorch's pluggable allocator.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use cachette::PoolId;
use cachette::hal::StreamRef;
use cachette_process as process;

use crate::counters::{FAILED_RELEASES, UNKNOWN_USES};
use crate::entry::{allocator_of, guarded, number_of, of_memory, or_raise, pointer, with_vendor};
use crate::pools;
use crate::std_function::StdFunction;

/// PyTorch's identifier of a pool: a C++ pair of two 64-bit numbers, passed in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct MempoolId {
    /// Not zero for a pool of a capture.
    pub first: u64,
    /// Not zero for a pool of a user.
    pub second: u64,
}

impl MempoolId {
    /// PyTorch's identifier of the default pool.
    pub const DEFAULT: Self = Self { first: 0, second: 0 };
}

impl From<MempoolId> for PoolId {
    fn from(id: MempoolId) -> Self {
        Self { capture: id.first, user: id.second }
    }
}

/// Called when PyTorch starts to use the allocator, with the number of devices.
///
/// PyTorch calls it with 0 when the functions are registered, and again when it initialises the devices. Devices are
/// opened at their first allocation, so this does nothing.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_torch_init(device_count: c_int) {
    let _ = device_count;
}

/// Releases every unused segment of every device.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_torch_reset() {
    or_raise(|| {
        let emptied = process::empty_cache();
        emptied.map(drop).map_err(|(allocator, error)| of_memory(allocator, error))
    });
}

/// Limits a device's allocator to a fraction of the device's memory.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_torch_memory_fraction(fraction: f64, device: c_int) {
    or_raise(|| {
        let allocator = allocator_of(device)?;
        with_vendor(allocator, allocator.set_memory_fraction(fraction))
    });
}

/// Returns the segment of an allocation: its start and size.
///
/// An unknown address is returned unchanged, and `size` is not written.
///
/// # Safety
///
/// 1. `size` is null, or is valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_torch_base_alloc(ptr: *mut c_void, size: *mut usize) -> *mut c_void {
    let find = || {
        let found = process::opened().find_map(|(_, each)| each.base_allocation(ptr as u64).ok());
        Ok(found)
    };
    let Ok(Some((base, bytes))) = guarded(find) else { return ptr };
    if !size.is_null() {
        // SAFETY: 1. is the caller's promise.
        unsafe { size.write(pointer(bytes) as usize) };
    }
    pointer(base)
}

/// Records that another stream uses the memory.
///
/// Unknown addresses are counted and otherwise ignored.
///
/// # Safety
///
/// 1. `stream` is a live stream of the memory's device, or null.
/// 2. It stays so as long as the process allocates on the device.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_torch_record_stream(ptr: *mut c_void, stream: *mut c_void) {
    if ptr.is_null() || process::is_forked() {
        return;
    }
    let stream = StreamRef::from_raw(stream as usize);
    // The device is unknown, but no two devices share an address.
    let recorded = guarded(|| {
        Ok(process::opened().find(|(_, allocator)| {
            // SAFETY: 1. and 2. are the caller's promises; only the allocator of `ptr` uses the stream.
            unsafe { allocator.record_stream_raw(ptr as u64, stream) }.is_ok()
        }))
    });
    match (recorded, RECORD_STREAM_CALLBACK.get()) {
        (Ok(Some((device, _))), Some(callback)) => callback(device, ptr as u64, stream),
        (Ok(Some(_)), None) => {}
        _ => UNKNOWN_USES.note(),
    }
}

/// Called with the device, the address and the stream after a stream was recorded.
type RecordStreamCallback = fn(device: u32, address: u64, stream: StreamRef);

static RECORD_STREAM_CALLBACK: OnceLock<RecordStreamCallback> = OnceLock::new();

/// Sets the function that is called after a stream was recorded. Only the first call in a process has an effect.
pub fn on_record_stream(callback: RecordStreamCallback) {
    let _ = RECORD_STREAM_CALLBACK.set(callback);
}

/// Routes requests of the streams that `filter` accepts to a pool, which is created if there is none.
///
/// # Safety
///
/// 1. `filter` is null, or a `std::function<bool(stream)>` of libstdc++ that lives during the call.
/// 2. Any thread may call and destroy the stored function object.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_torch_begin_allocate_to_pool(
    device: c_int,
    id: MempoolId,
    filter: *const StdFunction,
) {
    or_raise(|| {
        // SAFETY: 1. is the caller's promise.
        let filter = unsafe { filter.as_ref() };
        // SAFETY: 1. and 2. are the caller's promises.
        let filter = filter.and_then(|filter| unsafe { filter.copy() });
        pools::begin(number_of(device)?, id.into(), filter)
    });
}

/// Ends the route to a pool.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_torch_end_allocate_to_pool(device: c_int, id: MempoolId) {
    or_raise(|| pools::end(number_of(device)?, id.into()));
}

/// Removes a user of a pool; after the last one its memory is released.
///
/// It never throws, since destructors of graphs call it; errors are counted.
///
/// # Safety
///
/// 1. No graph that uses the pool's memory is launched after the last user is gone.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_torch_release_pool(device: c_int, id: MempoolId) {
    if process::is_forked() {
        return;
    }
    if let Err(error) = guarded(|| pools::release(number_of(device)?, id.into())) {
        FAILED_RELEASES.tell(error);
    }
}
