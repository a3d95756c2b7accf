//! Pinned host memory, cached.

use std::ffi::c_void;
use std::ptr;

use cachette::PinnedStats;
use cachette::pinned::TimeStat;

use crate::allocator::{AllocatorHandle, write_bytes};
use crate::convert::stream_of;
use crate::given::{any_handle, handle, out};
use crate::guard::guard;
use crate::statistics::Figure;
use crate::status::Status;
use crate::structure::{self, Structure};

/// How long calls took, in microseconds.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TimeFigure {
    /// Together.
    pub total: u64,
    /// The longest.
    pub max: u64,
    /// The shortest.
    pub min: u64,
    /// How many there were.
    pub count: u64,
}

impl From<TimeStat> for TimeFigure {
    fn from(time: TimeStat) -> Self {
        Self { total: time.total, max: time.max, min: time.min, count: time.count }
    }
}

/// What was done with pinned memory, and what is held. Sizes are those of blocks: powers of two.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PinnedFigures {
    /// Blocks, in use or free.
    pub allocations: Figure,
    /// Their bytes.
    pub allocated_bytes: Figure,
    /// Blocks that callers, streams or graphs use.
    pub active_requests: Figure,
    /// Their bytes.
    pub active_bytes: Figure,
    /// Time that making memory took.
    pub host_alloc_time: TimeFigure,
    /// Time that giving memory back took.
    pub host_free_time: TimeFigure,
    /// How often the driver was asked for memory.
    pub num_host_alloc: u64,
    /// How often memory went back to the driver.
    pub num_host_free: u64,
}

impl Structure for PinnedFigures {
    const FIRST_SIZE: usize = 208;
}

impl From<PinnedStats> for PinnedFigures {
    fn from(stats: PinnedStats) -> Self {
        Self {
            allocations: stats.allocations.into(),
            allocated_bytes: stats.allocated_bytes.into(),
            active_requests: stats.active_requests.into(),
            active_bytes: stats.active_bytes.into(),
            host_alloc_time: stats.host_alloc_time.into(),
            host_free_time: stats.host_free_time.into(),
            num_host_alloc: stats.num_host_alloc,
            num_host_free: stats.num_host_free,
        }
    }
}

/// Allocates `bytes` bytes of pinned host memory, rounded up to a power of two; for no bytes it writes NULL.
///
/// Copies between it and the device run asynchronously. It belongs to no stream. The host may read and write it as long
/// as no copy does.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pinned_allocate(
    allocator: *mut AllocatorHandle,
    bytes: usize,
    out_address: *mut *mut c_void,
) -> Status {
    guard(|| {
        // SAFETY: 2. is the caller's promise.
        let out = unsafe { out(out_address, ptr::null_mut(), "out_address") }?;
        // SAFETY: 1. is the caller's promise.
        let allocator = unsafe { handle(allocator, "allocator") }?;
        *out = allocator.inner.pinned().allocate_raw(bytes)?.cast();
        Ok(())
    })
}

/// Frees pinned memory; NULL is nothing. It serves again once the streams that were recorded for it have come so far.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pinned_free(allocator: *mut AllocatorHandle, address: *mut c_void) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let allocator = unsafe { any_handle(allocator, "allocator") }?;
        Ok(allocator.inner.pinned().free_raw(address.cast())?)
    })
}

/// Says that work in `stream` uses the pinned memory. Every stream that does is recorded or waited for before the
/// memory is freed; NULL is nothing.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pinned_record_stream(
    allocator: *mut AllocatorHandle,
    address: *mut c_void,
    stream: *mut c_void,
) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let allocator = unsafe { handle(allocator, "allocator") }?;
        let pinned = allocator.inner.pinned();
        // SAFETY: 4. is the caller's promise.
        Ok(unsafe { pinned.record_stream_raw(address.cast(), stream_of(stream)) }?)
    })
}

/// Gives every free block of pinned memory back to the driver, which waits for the whole device, and writes how many
/// bytes that were. `cachette_empty_cache` leaves pinned memory alone.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pinned_empty_cache(allocator: *mut AllocatorHandle, out_bytes: *mut u64) -> Status {
    // SAFETY: 1. and 2. are the caller's promises.
    unsafe { write_bytes(allocator, out_bytes, |allocator| allocator.pinned().empty_cache()) }
}

/// Writes the figures of pinned memory. `size` is `sizeof *out`.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pinned_stats(
    allocator: *const AllocatorHandle,
    out: *mut PinnedFigures,
    size: usize,
) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let allocator = unsafe { handle(allocator, "allocator") }?;
        let figures = allocator.inner.pinned().stats().into();
        // SAFETY: 2. is the caller's promise.
        unsafe { structure::write(&figures, out, size) }
    })
}

/// Makes every peak of pinned memory the present value.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pinned_reset_peaks(allocator: *mut AllocatorHandle) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let allocator = unsafe { handle(allocator, "allocator") }?;
        allocator.inner.pinned().reset_peak_stats();
        Ok(())
    })
}

/// Makes every sum and count of pinned memory zero; what is held now, and the peaks, stay.
#[doc = include_str!("safety.md")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pinned_reset_totals(allocator: *mut AllocatorHandle) -> Status {
    guard(|| {
        // SAFETY: 1. is the caller's promise.
        let allocator = unsafe { handle(allocator, "allocator") }?;
        allocator.inner.pinned().reset_accumulated_stats();
        Ok(())
    })
}
