//! Pinned memory for PyTorch's host allocator.
//!
//! PyTorch has one cache of pinned memory in a process, for all devices. So the allocator of one device serves it: the
//! first that was used when the first request came. Streams of every device may use the memory.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use cachette::config::ConfigPinned;
use cachette::hal::StreamRef;
use cachette::pinned::TimeStat;
use cachette::{Allocator, Config, PinnedStats, PointerProblem};
use cachette_process as process;

use crate::counters::FAILED_UNPINS;
use crate::entry::{allocator_of, guarded, of_memory, or_raise, with_vendor};
use crate::error::Error;

static PINNER: OnceLock<&'static Allocator> = OnceLock::new();

/// The allocator that serves pinned memory, once memory was pinned.
fn pinner() -> Option<&'static Allocator> {
    PINNER.get().copied().filter(|_| !process::is_forked())
}

/// Returns the allocator that serves pinned memory. The first call chooses one, that of `device` if none was used yet.
fn open(device: c_int) -> Result<&'static Allocator, Error> {
    if process::is_forked() {
        return Err(process::Error::Forked.into());
    }
    if let Some(known) = PINNER.get() {
        return Ok(known);
    }
    let used = process::opened().next().map(|(_, allocator)| allocator);
    let found = used.map_or_else(|| allocator_of(device), Ok)?;
    Ok(PINNER.get_or_init(|| found))
}

/// Whether PyTorch gets Cachette's pinned memory.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_pins() -> bool {
    let pinned = process::config().as_ref().map_or(ConfigPinned::Cachette, Config::pinned);
    pinned == ConfigPinned::Cachette
}

/// Allocates pinned memory; null for zero bytes. A process that has none yet gets it by the allocator of `device`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_pin(bytes: usize, device: c_int) -> *mut c_void {
    let pinned = or_raise(|| {
        let allocator = open(device)?;
        Ok(Some(with_vendor(allocator, allocator.pinned().allocate_raw(bytes as u64))?))
    });
    pinned.unwrap_or(std::ptr::null_mut()).cast()
}

/// Frees pinned memory; null is ignored. It never throws: errors are counted, see [`counters`](crate::counters).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_unpin(ptr: *mut c_void) {
    let Some(allocator) = pinner() else { return };
    let freed = guarded(|| with_vendor(allocator, allocator.pinned().free_raw(ptr.cast())));
    if let Err(error) = freed
        && !error.is_shutting_down()
    {
        FAILED_UNPINS.tell(format_args!("pinned memory is not free yet: {error}"));
    }
}

/// Records that work in a stream of `device` uses the pinned memory around an address. Returns `false` for other memory.
///
/// # Safety
///
/// 1. `stream` is a live stream of `device`, or null.
/// 2. It stays so as long as the process allocates on the device.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_pinned_record(
    ptr: *mut c_void,
    device: c_int,
    stream: *mut c_void,
) -> bool {
    let Some(allocator) = pinner() else { return false };
    let (pinned, stream) = (allocator.pinned(), StreamRef::from_raw(stream as usize));
    or_raise(|| {
        let owner = allocator_of(device)?;
        // SAFETY: 1. and 2. are the caller's promises.
        let record = |ptr: *mut u8| unsafe { pinned.record_stream_raw(ptr, owner, stream) };
        let recorded = match record(ptr.cast()) {
            Err(cachette::Error::InvalidPinnedPointer { why: PointerProblem::Interior { offset, .. }, .. }) => {
                record(ptr.cast::<u8>().wrapping_sub(usize::try_from(offset).unwrap_or(0)))
            }
            recorded => recorded,
        };
        match recorded {
            Ok(()) => Ok(!ptr.is_null()),
            Err(cachette::Error::InvalidPinnedPointer { .. }) => Ok(false),
            Err(error) => Err(of_memory(owner, error)),
        }
    })
}

/// Returns every idle segment of pinned memory to the driver.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_pinned_empty() {
    or_raise(|| {
        let Some(allocator) = pinner() else { return Ok(()) };
        with_vendor(allocator, allocator.pinned().empty_cache().map(drop))
    });
}

/// The statistics of pinned memory, in PyTorch's order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PinnedFigures {
    /// Blocks in use, their bytes, segments, their bytes; for each of these: current, peak, allocated and freed.
    pub stats: [[i64; 4]; 4],
    /// Time of allocations and of frees by the driver; for each: total, longest, shortest, number.
    pub times: [[i64; 4]; 2],
    /// The number of allocations and of frees by the driver.
    pub counts: [i64; 2],
}

impl From<&PinnedStats> for PinnedFigures {
    fn from(stats: &PinnedStats) -> Self {
        let counted = [&stats.active_requests, &stats.active_bytes, &stats.allocations, &stats.allocated_bytes];
        let time = |time: TimeStat| [time.total, time.max, time.min, time.count].map(u64::cast_signed);
        Self {
            stats: counted.map(super::figures::of),
            times: [stats.host_alloc_time, stats.host_free_time].map(time),
            counts: [stats.num_host_alloc, stats.num_host_free].map(u64::cast_signed),
        }
    }
}

/// Writes the statistics of pinned memory; zeros if none was pinned.
///
/// # Safety
///
/// 1. `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn cachette_adapter_pinned_stats(out: *mut PinnedFigures) {
    let stats = or_raise(|| Ok(pinner().map(|allocator| allocator.pinned().stats()).unwrap_or_default()));
    // SAFETY: 1. is the caller's promise.
    unsafe { out.write(PinnedFigures::from(&stats)) };
}

/// Resets every peak of pinned memory to the current value, or every sum and count to zero.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn cachette_adapter_pinned_reset(peaks: bool) {
    or_raise(|| {
        let pinned = pinner().map(Allocator::pinned);
        match pinned {
            Some(pinned) if peaks => pinned.reset_peak_stats(),
            Some(pinned) => pinned.reset_accumulated_stats(),
            None => {}
        }
        Ok(())
    });
}
