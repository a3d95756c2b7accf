//! Reading the statistics of an allocator.

#![forbid(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::Device;

use crate::allocator::Allocator;
use crate::stats::{Measure, Stats};

impl<D: Device> Allocator<D> {
    /// What the allocator has done and holds.
    #[must_use]
    pub fn stats(&self) -> Stats {
        if self.is_inherited() {
            return Stats::default();
        }
        for heap in self.inner().heaps.all() {
            heap.coalesce();
        }
        let shared = &self.inner().shared;
        let (peaks, totals) = (&shared.peaks, &shared.totals);
        Stats {
            allocation: peaks.stat(Measure::Allocation),
            segment: peaks.stat(Measure::Segment),
            active: peaks.stat(Measure::Active),
            inactive_split: peaks.stat(Measure::InactiveSplit),
            allocated_bytes: peaks.stat(Measure::AllocatedBytes),
            reserved_bytes: peaks.stat(Measure::ReservedBytes),
            active_bytes: peaks.stat(Measure::ActiveBytes),
            inactive_split_bytes: peaks.stat(Measure::InactiveSplitBytes),
            requested_bytes: peaks.stat(Measure::RequestedBytes),
            oversize_allocations: totals.oversize_allocations.stat(),
            oversize_segments: totals.oversize_segments.stat(),
            num_alloc_retries: totals.retries.load(Relaxed),
            num_ooms: totals.ooms.load(Relaxed),
            num_sync_all_streams: totals.waits.load(Relaxed),
            num_device_alloc: totals.device_allocs.load(Relaxed),
            num_device_free: totals.device_frees.load(Relaxed),
            num_oom_rejections: totals.rejections.load(Relaxed),
            max_split_size: totals.max_split,
        }
    }

    /// Bytes of blocks that callers hold now: one figure of [`stats`](Self::stats), for a fraction of its cost.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.now(Measure::AllocatedBytes)
    }

    /// Bytes held from the device now; see [`allocated_bytes`](Self::allocated_bytes).
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.now(Measure::ReservedBytes)
    }

    fn now(&self, measure: Measure) -> u64 {
        if self.is_inherited() {
            return 0;
        }
        self.inner().shared.peaks.now(measure)
    }

    /// Makes every peak the present value.
    pub fn reset_peaks(&self) {
        if self.is_inherited() {
            return;
        }
        let shared = &self.inner().shared;
        shared.peaks.reset_peaks();
        shared.totals.oversize_allocations.reset_peak();
        shared.totals.oversize_segments.reset_peak();
    }

    /// Makes every sum and count zero; what is held now, and the peaks, stay.
    pub fn reset_totals(&self) {
        if self.is_inherited() {
            return;
        }
        let shared = &self.inner().shared;
        shared.peaks.reset_totals();
        shared.totals.reset();
    }
}
