//! Pinned host memory, cached.

use std::ffi::c_void;

use cachette::PinnedStats;
use cachette::pinned::TimeStat;

use crate::allocator::AllocatorHandle;
use crate::convert::stream_of;
use crate::guard::{call, promises};
use crate::statistics::Figure;
use crate::status::Status;
use crate::structure::{Structure, same_fields};

/// Durations of calls, in microseconds.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TimeFigure {
    /// The sum.
    pub total: u64,
    /// The longest.
    pub max: u64,
    /// The shortest.
    pub min: u64,
    /// The number of calls.
    pub count: u64,
}

same_fields!(TimeStat => TimeFigure { total, max, min, count });

/// Statistics of pinned memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PinnedFigures {
    /// Segments from the driver.
    pub allocations: Figure,
    /// Their bytes.
    pub allocated_bytes: Figure,
    /// Blocks that callers, streams or graphs use.
    pub active_requests: Figure,
    /// Their bytes.
    pub active_bytes: Figure,
    /// Duration of driver allocations.
    pub host_alloc_time: TimeFigure,
    /// Duration of driver frees.
    pub host_free_time: TimeFigure,
    /// Number of driver allocations.
    pub num_host_alloc: u64,
    /// Number of driver frees.
    pub num_host_free: u64,
}

impl Structure for PinnedFigures {
    const FIRST_SIZE: usize = 208;
}

same_fields!(PinnedStats => PinnedFigures {
    allocations, allocated_bytes, active_requests, active_bytes, host_alloc_time, host_free_time, num_host_alloc,
    num_host_free,
});

/// Allocates `bytes` bytes of pinned host memory, rounded up to 512 bytes, or above 1 MiB to 4 KiB. For 0 bytes it
/// writes NULL.
///
/// Copies between it and the device run asynchronously. It belongs to no stream. The host may read and write it while
/// no copy does.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pinned_allocate(
    allocator: *mut AllocatorHandle,
    bytes: usize,
    out_address: *mut *mut c_void,
) -> Status {
    call!(
        [out(out_address), handle(allocator)],
        *out_address = allocator.inner.pinned().allocate_raw(bytes as u64)?.cast()
    )
}

/// Frees pinned memory; NULL is ignored. It is reused once the recorded streams have finished their work so far.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pinned_free(allocator: *mut AllocatorHandle, address: *mut c_void) -> Status {
    call!([any_handle(allocator)], allocator.inner.pinned().free_raw(address.cast())?)
}

/// Records that work in `stream` uses the pinned memory. Record or synchronise every such stream before the memory is
/// freed. A NULL address is ignored.
#[doc = promises!("1 and 4")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pinned_record_stream(
    allocator: *mut AllocatorHandle,
    address: *mut c_void,
    stream: *mut c_void,
) -> Status {
    call!([handle(allocator)], {
        let pinned = allocator.inner.pinned();
        // SAFETY: 4. is the caller's promise.
        unsafe { pinned.record_stream_raw(address.cast(), &allocator.inner, stream_of(stream)) }?;
    })
}

/// Releases every free block of pinned memory to the driver, which waits for the whole device, and writes the number of
/// bytes. `cachette_empty_cache` does not release pinned memory.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pinned_empty_cache(allocator: *mut AllocatorHandle, out_bytes: *mut u64) -> Status {
    call!([out(out_bytes), handle(allocator)], *out_bytes = allocator.inner.pinned().empty_cache()?)
}

/// Writes the statistics of pinned memory. `size` is `sizeof *out`.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pinned_stats(
    allocator: *const AllocatorHandle,
    out: *mut PinnedFigures,
    size: usize,
) -> Status {
    call!([handle(allocator), structure(out, size)], out.write(&allocator.inner.pinned().stats().into()))
}
