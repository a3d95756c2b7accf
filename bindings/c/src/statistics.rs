//! Statistics of an allocator.

use std::ffi::c_char;

use cachette::{Stat, StatArray, Stats};

use crate::allocator::AllocatorHandle;
use crate::guard::{call, promises};
use crate::status::Status;
use crate::structure::{Structure, same_fields};

/// A statistic over time.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Figure {
    /// The current value.
    pub current: u64,
    /// The maximum since the start, or since `cachette_reset_peaks`.
    pub peak: u64,
    /// Sum of increases since the start, or since `cachette_reset_totals`.
    pub allocated: u64,
    /// Sum of decreases since then.
    pub freed: u64,
}

same_fields!(Stat => Figure { current, peak, allocated, freed });

/// A statistic for all blocks, and for each of the two kinds of segment.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Figures {
    /// Both kinds together.
    pub all: Figure,
    /// Segments of 2 MiB, for blocks of at most 1 MiB.
    pub small_pool: Figure,
    /// All other segments.
    pub large_pool: Figure,
}

same_fields!(StatArray => Figures { all, small_pool, large_pool });

/// Statistics of an allocator.
///
/// Bytes of blocks are counted as rounded. A block that was freed while another stream still used it is active, but no
/// longer allocated.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Statistics {
    /// Blocks allocated now.
    pub allocation: Figures,
    /// Segments obtained from the device.
    pub segment: Figures,
    /// Blocks held by callers, or waiting for other streams.
    pub active: Figures,
    /// Free blocks that are only part of their segment, which can therefore not be released.
    pub inactive_split: Figures,
    /// Bytes of `allocation`.
    pub allocated_bytes: Figures,
    /// Bytes of `segment`.
    pub reserved_bytes: Figures,
    /// Bytes of `active`.
    pub active_bytes: Figures,
    /// Bytes of `inactive_split`.
    pub inactive_split_bytes: Figures,
    /// Bytes requested, before rounding.
    pub requested_bytes: Figures,
    /// Allocations of at least `max_split_size`.
    pub oversize_allocations: Figure,
    /// Segments of at least `max_split_size`.
    pub oversize_segments: Figure,
    /// Number of device allocations that were retried after cached memory was released.
    pub num_alloc_retries: u64,
    /// Number of requests that failed with out-of-memory.
    pub num_ooms: u64,
    /// Number of allocations that waited for events of other streams.
    pub num_sync_all_streams: u64,
    /// Segments obtained from the device.
    pub num_device_alloc: u64,
    /// Segments released to the device.
    pub num_device_free: u64,
    /// Requests that the limit refused, before the device was asked.
    pub num_oom_rejections: u64,
    /// The initial maximum size of blocks that are split, or `CACHETTE_NO_LIMIT`.
    pub max_split_size: u64,
    /// Pools that were evicted so that requests got their memory.
    pub num_evictions: u64,
    /// Number of times that other processes were asked for memory.
    pub num_reclaims: u64,
    /// Bytes that became free on the device while they were asked.
    pub reclaimed_bytes: u64,
    /// Bytes that were released because other processes asked.
    pub given_bytes: u64,
}

impl Structure for Statistics {
    const FIRST_SIZE: usize = 984;
}

same_fields!(Stats => Statistics {
    allocation, segment, active, inactive_split, allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes,
    requested_bytes, oversize_allocations, oversize_segments, num_alloc_retries, num_ooms, num_sync_all_streams,
    num_device_alloc, num_device_free, num_oom_rejections, max_split_size, num_evictions,
    num_reclaims, reclaimed_bytes, given_bytes,
});

/// Writes the statistics of the allocator. `size` is `sizeof *out`.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_stats(
    allocator: *const AllocatorHandle,
    out: *mut Statistics,
    size: usize,
) -> Status {
    call!([handle(allocator), structure(out, size)], out.write(&allocator.inner.stats().into()))
}

/// Writes the statistics as a table with a final zero into a buffer of `capacity` bytes, and the number of bytes
/// needed. Pass NULL and 0 to get only that number.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_stats_text(
    allocator: *const AllocatorHandle,
    buffer: *mut c_char,
    capacity: usize,
    out_needed: *mut usize,
) -> Status {
    call!(
        [handle(allocator), buffer(buffer, capacity, out_needed)],
        buffer.write(&allocator.inner.stats().to_string())?
    )
}

/// Writes the statistics in Prometheus' text format, as `cachette_stats_text` does. It asks the driver for the free
/// memory.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_metrics_text(
    allocator: *const AllocatorHandle,
    buffer: *mut c_char,
    capacity: usize,
    out_needed: *mut usize,
) -> Status {
    call!(
        [handle(allocator), buffer(buffer, capacity, out_needed)],
        buffer.write(&allocator.inner.metrics().to_string())?
    )
}

/// Writes the bytes of the blocks that callers hold. It is much cheaper than `cachette_stats`.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_allocated_bytes(allocator: *const AllocatorHandle, out_bytes: *mut u64) -> Status {
    call!([out(out_bytes), handle(allocator)], *out_bytes = allocator.inner.allocated_bytes())
}

/// Writes the bytes that are held from the device. It is much cheaper than `cachette_stats`.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_reserved_bytes(allocator: *const AllocatorHandle, out_bytes: *mut u64) -> Status {
    call!([out(out_bytes), handle(allocator)], *out_bytes = allocator.inner.reserved_bytes())
}

/// Resets every peak to the current value.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_reset_peaks(allocator: *mut AllocatorHandle) -> Status {
    call!([handle(allocator)], allocator.inner.reset_peaks())
}

/// Resets every sum and count to zero; current values and peaks stay.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_reset_totals(allocator: *mut AllocatorHandle) -> Status {
    call!([handle(allocator)], allocator.inner.reset_totals())
}
