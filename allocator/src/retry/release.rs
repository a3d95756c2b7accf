//! The retry steps that return idle segments to the device.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device};

use crate::blocks::IdleSegment;
use crate::error::sum_all;
use crate::heap::Heap;
use crate::retry::Retry;
use crate::size::SegmentKind;

impl<D: Device> Retry<'_, D> {
    /// Releases segments that have been idle for long, once more than a configured share of the limit is held.
    ///
    /// Each round releases the segments at least as old as the average of those that can be released.
    pub(super) fn garbage_collect(&self) -> hal::Result<()> {
        let settings = &self.shared.settings;
        let (Some(limit), Some(threshold)) = (settings.limit(), settings.config().gc_threshold()) else {
            return Ok(());
        };
        let allowed = crate::device_state::fraction_of(threshold, limit);
        let target = self.shared.totals.reserved.load(Relaxed).saturating_sub(allowed);
        let mut reclaimed = 0;
        while reclaimed < target {
            let released = self.garbage_collect_older_half()?;
            if released == 0 {
                break;
            }
            reclaimed += released;
        }
        Ok(())
    }

    fn garbage_collect_older_half(&self) -> hal::Result<u64> {
        let mut idle: Vec<(Arc<Heap<D>>, IdleSegment)> = Vec::new();
        for heap in self.donors() {
            let large = heap.idle_segments()?.into_iter().filter(|idle| idle.kind == SegmentKind::Large);
            idle.extend(large.map(|idle| (Arc::clone(&heap), idle)));
        }
        let ages: u64 = idle.iter().map(|(_, idle)| u64::from(idle.age)).sum();
        let count = idle.len() as u64;
        let old = idle.iter().filter(|(_, idle)| u64::from(idle.age) * count >= ages);
        sum_all(old.map(|(heap, idle)| heap.release(*idle)))
    }

    /// Releases unsplittable segments of this stream: the smallest that is large enough, or the largest ones until
    /// their sum is. Returns whether enough was released.
    pub(super) fn release_enough(&self) -> hal::Result<bool> {
        if self.policy.max_split == u64::MAX {
            return Ok(false);
        }
        let enough = self.rounded.max(self.policy.max_split);
        let mut idle = self.heap.idle_segments()?;
        idle.retain(|idle| idle.kind == self.kind && idle.bytes >= self.policy.max_split);
        idle.sort_by_key(|idle| (idle.bytes, idle.order));
        if let Some(single) = idle.iter().find(|idle| idle.bytes >= enough) {
            return Ok(self.heap.release(*single)? > 0);
        }
        let mut released = 0;
        for idle in idle.into_iter().rev() {
            if released >= enough {
                break;
            }
            released += self.heap.release(idle)?;
        }
        Ok(released >= enough)
    }
}

/// Releases all unused memory of a heap, after a wait for its stream.
pub(super) fn release_whole<D: Device>(heap: &Heap<D>) -> hal::Result<()> {
    heap.release_idle()?;
    if heap.stream_state.ask_capturing()? {
        return Ok(());
    }
    heap.wait_and_unmap()?;
    // No work uses the memory any more, so only what the driver refused remains. This retries it once.
    heap.unmap_pending();
    Ok(())
}
