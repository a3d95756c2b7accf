//! Pools with users and sources.

use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::Arc;

use cachette::PoolOptions;
use cachette::hal::DevicePtr;
use cachette::source::{AllocContext, FunctionSource, Source, SourceError};
use cachette_process as process;

use crate::arguments::User;
use crate::entry::{number_of, or_raise, pointer, with_vendor};
use crate::hooks::MempoolId;
use crate::pools;

/// A source of segments: another allocator of PyTorch.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PoolSource {
    /// Allocates a segment for a stream; null on out-of-memory. It must not throw.
    pub allocate: unsafe extern "C" fn(user: User, bytes: u64, device: c_int, stream: *mut c_void) -> *mut c_void,
    /// Frees a segment. It must not throw.
    pub free: unsafe extern "C" fn(user: User, ptr: *mut c_void),
    /// Called when the source is no longer needed.
    pub close: unsafe extern "C" fn(user: User),
    /// The first argument of all three.
    pub user: User,
}

/// Closes a source when its last user is dropped.
struct Closing(PoolSource);

impl Drop for Closing {
    fn drop(&mut self) {
        // SAFETY: this is called once, and the other two are never called after it.
        unsafe { (self.0.close)(self.0.user) };
    }
}

impl PoolSource {
    /// The allocator's form of the source.
    fn open(self) -> Arc<dyn Source> {
        let keeper = Arc::new(Closing(self));
        let kept = Arc::clone(&keeper);
        let allocate = move |bytes, place: &AllocContext| {
            let PoolSource { allocate, user, .. } = keeper.0;
            let device = c_int::try_from(place.device.0).unwrap_or(c_int::MAX);
            // SAFETY: the source is open, and the stream is a live one of the device.
            let made = unsafe { allocate(user, bytes, device, pointer(place.stream.raw() as u64)) };
            let none = || SourceError::out_of_memory("the pool's allocator has no memory");
            DevicePtr::new(made as u64).ok_or_else(none)
        };
        let free = move |ptr: DevicePtr, _, _: &AllocContext| {
            let PoolSource { free, user, .. } = kept.0;
            // SAFETY: the source is open and allocated this segment, which is no longer in use.
            unsafe { free(user, pointer(ptr.address())) };
            Ok(())
        };
        let name = "PyTorch's allocator of the pool";
        // SAFETY: 1. 2. 3. PyTorch requires them of every allocator of a pool.
        Arc::new(unsafe { FunctionSource::new(name, allocate, free) })
    }
}

/// Adds a user to a pool, which is created if there is none; `source` may be null.
///
/// # Safety
///
/// 1. `source` is null, or any thread may call its functions until it is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_use_pool(device: c_int, id: MempoolId, source: *const PoolSource) {
    or_raise(|| {
        // SAFETY: 1. is the caller's promise.
        let source = unsafe { source.as_ref() };
        let options = source.map_or_else(PoolOptions::new, |source| PoolOptions::new().source(source.open()));
        pools::join(number_of(device)?, id.into(), options)
    });
}

/// The number of users of a pool; 0 if there is no such pool.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_pool_uses(device: c_int, id: MempoolId) -> u64 {
    or_raise(|| Ok(pools::users_of(number_of(device)?, id.into())))
}

/// Sets whether other requests may use the free blocks of a pool before they fail.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_set_use_on_oom(device: c_int, id: MempoolId, on: bool) {
    or_raise(|| {
        pools::open(number_of(device)?, id.into())?.set_use_on_oom(on);
        Ok(())
    });
}

/// Turns off splitting of a pool's blocks.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_set_no_split(device: c_int, id: MempoolId) {
    or_raise(|| {
        pools::open(number_of(device)?, id.into())?.set_no_split(true);
        Ok(())
    });
}

/// Whether exactly these addresses are allocated in a pool.
///
/// # Safety
///
/// 1. `addresses` points to `count` addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_pool_holds(
    device: c_int,
    id: MempoolId,
    addresses: *const u64,
    count: usize,
) -> bool {
    or_raise(|| {
        let addresses = match count {
            0 => &[],
            // SAFETY: 1. is the caller's promise.
            _ => unsafe { slice::from_raw_parts(addresses, count) },
        };
        Ok(pools::open(number_of(device)?, id.into())?.check_live_allocations(addresses))
    })
}

/// Releases every unused segment of a pool, on every device that has it.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_empty_pool(id: MempoolId) {
    or_raise(|| {
        for (_, allocator) in process::opened() {
            if let Ok(pool) = allocator.open_pool(id.into()) {
                with_vendor(allocator, pool.empty_cache())?;
            }
        }
        Ok(())
    });
}
