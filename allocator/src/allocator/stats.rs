//! Inspects an allocator: statistics, available memory and consistency.

#![forbid(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{self as hal, Device, StreamRef};

use super::Allocator;
use crate::stats::{Counted, Stats};

/// The elastic segments of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElasticSegment {
    /// The stream.
    pub stream: StreamRef,
    /// Bytes of reserved addresses.
    pub addresses: u64,
    /// Bytes of mapped memory, in use or not.
    pub mapped: u64,
}

impl<D: Device> Allocator<D> {
    /// Returns the statistics of the allocator.
    #[must_use]
    pub fn stats(&self) -> Stats {
        for heap in self.inner.heaps.all() {
            drop(heap.lock_coalesced());
        }
        let shared = self.shared();
        let (peaks, totals) = (&shared.peaks, &shared.totals);
        Stats {
            allocation: peaks.stat(Counted::Allocations),
            segment: peaks.stat(Counted::Segments),
            active: peaks.stat(Counted::Pending),
            inactive_split: peaks.stat(Counted::InactiveSplit),
            allocated_bytes: peaks.stat(Counted::AllocatedBytes),
            reserved_bytes: peaks.stat(Counted::ReservedBytes),
            active_bytes: peaks.stat(Counted::PendingBytes),
            inactive_split_bytes: peaks.stat(Counted::InactiveSplitBytes),
            requested_bytes: peaks.stat(Counted::RequestedBytes),
            oversize_allocations: *totals.oversize_allocations.lock(),
            oversize_segments: *totals.oversize_segments.lock(),
            num_alloc_retries: totals.retries.load(Relaxed),
            num_ooms: totals.ooms.load(Relaxed),
            num_sync_all_streams: totals.waits.load(Relaxed),
            num_device_alloc: totals.device_allocs.load(Relaxed),
            num_device_free: totals.device_frees.load(Relaxed),
            num_oom_rejections: totals.rejections.load(Relaxed),
            max_split_size: totals.max_split,
            num_evictions: totals.evictions.load(Relaxed),
            num_reclaims: totals.reclaims.load(Relaxed),
            reclaimed_bytes: totals.reclaimed.load(Relaxed),
            given_bytes: totals.given.load(Relaxed),
        }
    }

    /// Bytes of allocated blocks: one figure of [`stats`](Self::stats), for a fraction of its cost.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.shared().peaks.now(Counted::AllocatedBytes)
    }

    /// Bytes held from the device now; see [`allocated_bytes`](Self::allocated_bytes).
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.shared().peaks.now(Counted::ReservedBytes)
    }

    /// Sets every peak to the current value.
    pub fn reset_peaks(&self) {
        let shared = self.shared();
        shared.peaks.reset_peaks();
        shared.outside.reset_peaks();
        shared.totals.oversize_allocations.lock().reset_peak();
        shared.totals.oversize_segments.lock().reset_peak();
    }

    /// Sets every sum and count to zero. Current values and peaks stay.
    pub fn reset_totals(&self) {
        let shared = self.shared();
        shared.peaks.reset_totals();
        shared.totals.reset();
        shared.outside.reset_totals();
    }

    /// Returns the size of the largest free block, in bytes.
    #[must_use]
    pub fn largest_free(&self) -> u64 {
        self.inner.heaps.all().iter().map(|heap| heap.largest_free()).max().unwrap_or(0)
    }

    /// Returns the largest request that a free block, or the device's free memory within the limit, could serve now.
    pub fn largest_available(&self) -> hal::Result<u64> {
        let shared = self.shared();
        let limit = shared.settings.limit().unwrap_or(u64::MAX);
        let room = limit.saturating_sub(shared.totals.reserved.load(Relaxed));
        Ok(self.largest_free().max(shared.free_memory()?.min(room)))
    }

    /// Returns the elastic segments of every stream that has some, in the order of the streams' first use.
    #[must_use]
    pub fn elastic_segments(&self) -> Vec<ElasticSegment> {
        let heaps = self.inner().heaps.all();
        let segments = heaps.iter().map(|heap| ElasticSegment {
            stream: heap.stream_state.handle,
            addresses: heap.address_ranges().iter().map(|(_, bytes)| bytes).sum(),
            mapped: heap.reserved(),
        });
        segments.filter(|segment| segment.addresses > 0).collect()
    }

    /// Walks every structure and checks every invariant. The error names the violated one.
    ///
    /// For tests: each heap stays locked during its walk.
    pub fn check(&self) -> Result<(), String> {
        let heaps = self.inner.heaps.all();
        heaps.iter().try_for_each(|heap| heap.check())?;
        self.inner.pinned.blocks.lock().check()?;
        let outside = self.outside().device.current;
        let held = heaps.iter().map(|heap| heap.reserved()).sum::<u64>() + outside;
        let reserved = self.shared().totals.reserved.load(Relaxed);
        if held == reserved { Ok(()) } else { Err(format!("{held} bytes are held and {reserved} are counted")) }
    }
}
