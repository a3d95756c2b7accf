//! The share of a device that an allocator may hold.

use cachette::Allocator;
use cachette::hal::AnyDevice;

/// The bound on what `allocator` may hold, as a fraction of the device's memory; 1 without a bound.
#[expect(
    clippy::cast_precision_loss,
    reason = "a fraction of bytes needs no more digits than a float has"
)]
pub(crate) fn of(allocator: &Allocator<AnyDevice>) -> f64 {
    let total = allocator.device_info().total_memory;
    match allocator.memory_limit() {
        Some(limit) if limit < total => limit as f64 / total as f64,
        _ => 1.0,
    }
}
