//! What an allocator has done and holds.

use std::ffi::c_char;

use cachette::{Stat, StatArray, Stats};

use crate::allocator::AllocatorHandle;
use crate::guard::{call, promises};
use crate::status::Status;
use crate::structure::{Structure, same_fields};

/// One figure over time.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Figure {
    /// Now.
    pub current: u64,
    /// The highest since the start, or since `cachette_reset_peaks`.
    pub peak: u64,
    /// Sum of increases since the start, or since `cachette_reset_totals`.
    pub allocated: u64,
    /// Sum of decreases since then.
    pub freed: u64,
}

same_fields!(Stat => Figure { current, peak, allocated, freed });

/// A figure for all blocks, and apart for the two kinds of segment.
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

/// What an allocator has done and holds.
///
/// Bytes of blocks are counted as rounded. A block that was freed while another stream still used it is active, but no
/// longer allocated.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Statistics {
    /// Blocks held by callers.
    pub allocation: Figures,
    /// Segments obtained from the device.
    pub segment: Figures,
    /// Blocks held by callers, or waiting for other streams.
    pub active: Figures,
    /// Free blocks that are only part of their segment, which can therefore not be given back.
    pub inactive_split: Figures,
    /// Bytes of `allocation`.
    pub allocated_bytes: Figures,
    /// Bytes of `segment`.
    pub reserved_bytes: Figures,
    /// Bytes of `active`.
    pub active_bytes: Figures,
    /// Bytes of `inactive_split`.
    pub inactive_split_bytes: Figures,
    /// Bytes that callers asked for.
    pub requested_bytes: Figures,
    /// Allocations at least as large as the bound on splitting.
    pub oversize_allocations: Figure,
    /// Segments at least as large as the bound on splitting.
    pub oversize_segments: Figure,
    /// How often the device was asked again after memory had been given back to it.
    pub num_alloc_retries: u64,
    /// How often a request ended in out-of-memory.
    pub num_ooms: u64,
    /// How often an allocation waited for events of other streams.
    pub num_sync_all_streams: u64,
    /// Segments obtained from the device.
    pub num_device_alloc: u64,
    /// Segments given back to the device.
    pub num_device_free: u64,
    /// Requests refused because of the limit, before the device was asked.
    pub num_oom_rejections: u64,
    /// The bound on splitting when the allocator was made, or `CACHETTE_NO_LIMIT`.
    pub max_split_size: u64,
}

impl Structure for Statistics {
    const FIRST_SIZE: usize = 984;
}

same_fields!(Stats => Statistics {
    allocation, segment, active, inactive_split, allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes,
    requested_bytes, oversize_allocations, oversize_segments, num_alloc_retries, num_ooms, num_sync_all_streams,
    num_device_alloc, num_device_free, num_oom_rejections, max_split_size,
});

/// Writes what the allocator has done and holds. `size` is `sizeof *out`.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_stats(
    allocator: *const AllocatorHandle,
    out: *mut Statistics,
    size: usize,
) -> Status {
    call!([handle(allocator), structure(out, size)], out.write(&allocator.inner.stats().into()))
}

/// Writes the same as a table for people, with a final zero, into a buffer of `capacity` bytes, and how many bytes it
/// needs. NULL with a capacity of 0 only asks.
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

/// Writes the figures in the text form that Prometheus reads, as `cachette_stats_text` does. It asks the driver how
/// much memory is free.
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

/// Writes how many bytes of blocks callers hold now. It is much cheaper than `cachette_stats`.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_allocated_bytes(allocator: *const AllocatorHandle, out_bytes: *mut u64) -> Status {
    call!([out(out_bytes), handle(allocator)], *out_bytes = allocator.inner.allocated_bytes())
}

/// Writes how many bytes are held from the device now. It is much cheaper than `cachette_stats`.
#[doc = promises!("1 and 2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_reserved_bytes(allocator: *const AllocatorHandle, out_bytes: *mut u64) -> Status {
    call!([out(out_bytes), handle(allocator)], *out_bytes = allocator.inner.reserved_bytes())
}

/// Makes every peak the present value.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_reset_peaks(allocator: *mut AllocatorHandle) -> Status {
    call!([handle(allocator)], allocator.inner.reset_peaks())
}

/// Makes every sum and count zero; what is held now, and the peaks, stay.
#[doc = promises!("1")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_reset_totals(allocator: *mut AllocatorHandle) -> Status {
    call!([handle(allocator)], allocator.inner.reset_totals())
}
