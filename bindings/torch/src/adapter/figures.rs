//! Statistics, limits, caching and peer access.

use std::ffi::c_int;

use cachette::{Allocator, Stat, StatArray, Stats};
use cachette_process as process;

use crate::entry::{allocator_of, or_raise, with_vendor};

/// The statistics of a device, in PyTorch's order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Figures {
    /// For each of the nine figures: all, small and large; for each of these: current, peak, allocated and freed.
    pub arrays: [[[i64; 4]; 3]; 9],
    /// Allocations and segments of at least `max_split_size`.
    pub oversize: [[i64; 4]; 2],
    /// Retries, failures, waits for all streams, segments obtained, segments released, `max_split_size`, requests that
    /// were rejected without a driver call.
    pub counts: [i64; 7],
}

impl From<&Stats> for Figures {
    fn from(stats: &Stats) -> Self {
        let kinds = |array: &StatArray| [&array.all, &array.small_pool, &array.large_pool].map(of);
        let arrays = [
            &stats.allocation,
            &stats.segment,
            &stats.active,
            &stats.inactive_split,
            &stats.allocated_bytes,
            &stats.reserved_bytes,
            &stats.active_bytes,
            &stats.inactive_split_bytes,
            &stats.requested_bytes,
        ];
        let counts = [
            stats.num_alloc_retries,
            stats.num_ooms,
            stats.num_sync_all_streams,
            stats.num_device_alloc,
            stats.num_device_free,
            stats.max_split_size,
            stats.num_oom_rejections,
        ];
        Self {
            arrays: arrays.map(kinds),
            oversize: [&stats.oversize_allocations, &stats.oversize_segments].map(of),
            // PyTorch's counts are signed; there, -1 means no split limit.
            counts: counts.map(u64::cast_signed),
        }
    }
}

pub(super) fn of(stat: &Stat) -> [i64; 4] {
    [stat.current, stat.peak, stat.allocated, stat.freed].map(u64::cast_signed)
}

/// The allocator of a device, if it was used.
fn used(device: c_int) -> Option<&'static Allocator> {
    usize::try_from(device).ok().and_then(process::find)
}

/// Writes the statistics of a device; zeros if it was never used.
///
/// # Safety
///
/// 1. `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_stats(device: c_int, out: *mut Figures) {
    let stats = or_raise(|| Ok(usize::try_from(device).map(process::stats).unwrap_or_default()));
    // SAFETY: 1. is the caller's promise.
    unsafe { out.write(Figures::from(&stats)) };
}

/// Resets every peak of a device to the current value.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_reset_peaks(device: c_int) {
    or_raise(|| {
        if let Some(allocator) = used(device) {
            allocator.reset_peaks();
        }
        Ok(())
    });
}

/// Resets every sum and count of a device to zero.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_reset_totals(device: c_int) {
    or_raise(|| {
        let _ = usize::try_from(device).map(process::reset_totals);
        Ok(())
    });
}

/// The memory limit as a fraction of the device's memory; 1 without a limit.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_memory_fraction(device: c_int) -> f64 {
    or_raise(|| Ok(allocator_of(device)?.memory_fraction()))
}

/// The largest request that a device can serve now, in bytes.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_largest(device: c_int) -> u64 {
    or_raise(|| {
        let allocator = allocator_of(device)?;
        with_vendor(allocator, allocator.largest_available().map_err(Into::into))
    })
}

/// Lets work on `peer` use the memory of `device`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_allow_peer(device: c_int, peer: c_int) {
    or_raise(|| {
        let (allocator, peer) = (allocator_of(device)?, allocator_of(peer)?);
        with_vendor(allocator, allocator.allow_peer(peer.device()))
    });
}

/// Turns caching on or off.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_set_caching(on: bool) {
    or_raise(|| Ok(process::set_caching(on)?));
}

/// Whether caching is on.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_caches() -> bool {
    or_raise(|| Ok(process::caches()))
}
