//! Emptying of every device, and statistics of any, opened or not.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cachette::{Allocator, Config, Stats};

use crate::fork::is_forked;
use crate::state::{MOST_DEVICES, config, existing, find, opened};

/// How often each device was emptied before it was opened. PyTorch counts such calls too, and opens no device for them.
static EMPTIED: [AtomicU64; MOST_DEVICES] = [const { AtomicU64::new(0) }; MOST_DEVICES];

/// Releases every unused segment of every device. Returns the number of released bytes.
///
/// Every device is emptied, even after a failure. The first failure is returned, with the allocator that it is of.
pub fn empty_cache() -> Result<u64, (&'static Allocator, cachette::Error)> {
    if !is_forked() && !config().as_ref().is_some_and(Config::never_block) {
        let unopened = (0..).zip(&EMPTIED).filter(|(device, _)| existing(*device).is_none());
        unopened.for_each(|(_, emptied)| {
            emptied.fetch_add(1, Relaxed);
        });
    }
    let mut result = Ok(0);
    for (_, allocator) in opened() {
        let emptied = allocator.empty_cache().map_err(|error| (allocator, error));
        result = result.and_then(|bytes| emptied.map(|more| bytes + more));
    }
    result
}

/// The statistics of a device. If it was never used, they count only the calls of [`empty_cache`].
#[must_use]
pub fn stats(device: usize) -> Stats {
    let mut stats = find(device).map(Allocator::stats).unwrap_or_default();
    stats.num_sync_all_streams += EMPTIED.get(device).map_or(0, |emptied| emptied.load(Relaxed));
    stats
}

/// Resets every sum and count of a device to zero.
pub fn reset_totals(device: usize) {
    if let Some(emptied) = EMPTIED.get(device) {
        emptied.store(0, Relaxed);
    }
    if let Some(allocator) = find(device) {
        allocator.reset_totals();
    }
}
